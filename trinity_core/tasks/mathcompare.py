r"""Comparing two structures of `mathgrade`: the structure here, each formula by SymPy and math-verify.

Runs in the process of `mathchild` only, where time and memory are limited. The outcome does not depend on which side
is the reference, except that a tolerance is relative to the reference. Decimals are read exactly; numbers that agree
to 40 digits are the same. `\log` without a base is the decimal logarithm; where that gives no equality the natural
one is tried on both sides. `i` is the imaginary unit. Not covered: see `mathgrade`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import sympy
from math_verify import verify
from math_verify.parser import parse_latex_cached
from sympy import Expr, FiniteSet, I, Interval, MatrixBase, Rational, S, Set, Symbol

DIGITS = 40
"""Digits to which two numbers must agree to be the same."""
_POINTS = (Rational(7, 11), Rational(13, 5), Rational(17, 7), Rational(23, 19), Rational(3, 13), Rational(29, 6))
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_FAILURES = (TypeError, ValueError, AttributeError, NotImplementedError, ArithmeticError, KeyError, IndexError)
"""What SymPy raises on what it cannot do."""
_NO_BASE = re.compile(r"\\log(?![A-Za-z_])(?!\s*_)")


class Unreadable(Exception):
    """A formula that cannot be read."""


class Comparison:
    """Compares structures under a relative tolerance, written as a fraction ("0", "1/100")."""

    def __init__(self, tolerance: str = "0") -> None:
        given = Fraction(tolerance)
        self._tolerance = Rational(given.numerator, given.denominator)
        self._natural = False

    def same(self, said: list[Any], wanted: list[Any]) -> bool:
        """Whether both are the same. Raises Unreadable when a formula cannot be read."""
        if self._same(said, wanted):
            return True
        if _NO_BASE.search(str(said).replace("\\\\", "\\")) or _NO_BASE.search(str(wanted).replace("\\\\", "\\")):
            self._natural = True
            return self._same(said, wanted)
        return False

    def _same(self, a: list[Any], b: list[Any]) -> bool:
        a, b = _plain(a), _plain(b)
        kinds = {a[0], b[0]}
        if kinds == {"leaf"}:
            return self._leaves(self._read(a[1]), self._read(b[1]))
        if kinds == {"tuple"} or (kinds == {"tuple", "list"}):
            return self._in_order(a[1], b[1])
        if kinds <= {"list", "set"}:
            return self._unordered(a[1], b[1])
        if kinds & {"list", "set"} and kinds & {"leaf", "relation"}:
            return self._unordered(*(x[1] if x[0] in ("list", "set") else [x] for x in (a, b)))
        if kinds == {"relation"}:
            return self._relations(a, b)
        if kinds == {"relation", "leaf"}:
            relation, leaf = (a, b) if a[0] == "relation" else (b, a)
            value = self._assigned(relation)
            if value is not None:
                return self._order(relation is a, value, self._read(leaf[1]))
        if kinds == {"relation", "tuple"} and "=" in (a[2] if a[0] == "relation" else b[2]):
            relation, other = (a, b) if a[0] == "relation" else (b, a)
            tree = _right_side(relation)
            return tree is not None and (self._same(tree, other) if relation is a else self._same(other, tree))
        return self._sets(a, b)

    def _order(self, first: bool, value: Any, other: Any) -> bool:
        return self._leaves(value, other) if first else self._leaves(other, value)

    def _in_order(self, a: Sequence[list[Any]], b: Sequence[list[Any]]) -> bool:
        return len(a) == len(b) and all(self._same(x, y) for x, y in zip(a, b, strict=True))

    def _unordered(self, a: Sequence[list[Any]], b: Sequence[list[Any]]) -> bool:
        if len(a) * len(b) > 400:
            return False
        table = [[self._same(x, y) for y in b] for x in a]
        return all(any(row) for row in table) and all(any(row[j] for row in table) for j in range(len(b)))

    # --- Formulas -----------------------------------------------------------------------------------------------

    def _read(self, text: str) -> Any:
        text = _NO_BASE.sub(r"\\ln", text) if self._natural else text
        try:
            value = parse_latex_cached(text)
            if not isinstance(value, sympy.Basic | MatrixBase):
                raise Unreadable(text)
            floats = {f: Rational(str(f)) for f in value.atoms(sympy.Float)}
            names = {s: I if s.name == "i" else Symbol(s.name, real=True) for s in value.free_symbols}
            value = value.xreplace({**floats, **names})
            value = value.doit()
        except (MemoryError, RecursionError, Unreadable):
            raise
        except Exception as error:  # the parser raises bare Exception
            raise Unreadable(text) from error
        if value.has(S.NaN, S.ComplexInfinity):
            raise Unreadable(text)
        return value

    def _leaves(self, said: Any, wanted: Any) -> bool:
        if isinstance(said, MatrixBase) or isinstance(wanted, MatrixBase):
            return (
                isinstance(said, MatrixBase)
                and isinstance(wanted, MatrixBase)
                and said.shape == wanted.shape
                and all(self._leaves(x, y) for x, y in zip(said, wanted, strict=True))
            )
        if said == wanted:
            return True
        if not isinstance(said, Expr) or not isinstance(wanted, Expr):
            return type(said) is type(wanted) and bool(verify(wanted, said, timeout_seconds=None))
        if said.is_number and wanted.is_number:
            return self._numbers(said, wanted)
        if {s.name for s in said.free_symbols} != {s.name for s in wanted.free_symbols} and not _close_at(
            said, wanted, said.free_symbols | wanted.free_symbols
        ):
            return False
        if not _close_at(said, wanted, said.free_symbols | wanted.free_symbols):
            return False
        return _zero(said - wanted) or bool(verify(wanted, said, float_rounding=DIGITS, timeout_seconds=None))

    def _numbers(self, said: Expr, wanted: Expr) -> bool:
        if said.is_infinite or wanted.is_infinite:
            return bool(said == wanted)
        if said.is_Rational and wanted.is_Rational:
            return bool(abs(said - wanted) <= self._tolerance * abs(wanted))
        a, b = said.evalf(DIGITS + 20), wanted.evalf(DIGITS + 20)
        size = max(abs(a), abs(b))
        if self._tolerance and bool(abs(a - b) <= self._tolerance * abs(b)):
            return True
        if size and abs(a - b) > size * sympy.Float(10) ** -DIGITS:
            return _tiny(size) and _zero(said - wanted)
        return True

    # --- Relations ----------------------------------------------------------------------------------------------

    def _assigned(self, relation: list[Any]) -> Any:
        """The value that `x = 5` or a chain of equalities gives; None for other relations."""
        parts, operators = relation[1], relation[2]
        if set(operators) != {"="}:
            return None
        first = self._read(parts[0])
        if isinstance(first, Symbol | sympy.core.function.AppliedUndef) or len(parts) > 2:
            return self._read(parts[-1])
        last = self._read(parts[-1])
        if isinstance(last, Symbol):
            return first
        return last if getattr(first, "is_number", False) and not last.free_symbols else None

    def _relations(self, a: list[Any], b: list[Any]) -> bool:
        if set(a[2]) == set(b[2]) == {"="}:
            return self._equations(a, b)
        if len(a[1]) == len(b[1]) and self._termwise(a, b):
            return True
        return self._sets(a, b)

    def _termwise(self, a: list[Any], b: list[Any]) -> bool:
        back = list(reversed(b[1])), [_FLIPPED[op] for op in reversed(b[2])]
        for parts, operators in ((b[1], b[2]), back):
            if a[2] == operators and all(
                self._leaves(self._read(x), self._read(y)) for x, y in zip(a[1], parts, strict=True)
            ):
                return True
        if len(a[1]) != 2:
            return False
        left, right = (self._read(r[1][0]) - self._read(r[1][1]) for r in (a, b))
        factor = _factor(left, right)
        if factor is None:
            return False
        operator = a[2][0] if factor > 0 else _FLIPPED[a[2][0]]
        return bool(operator == b[2][0])

    def _equations(self, a: list[Any], b: list[Any]) -> bool:
        sides = [[self._read(part) for part in relation[1]] for relation in (a, b)]
        first, second = ((side[0], side[-1]) for side in sides)
        if self._leaves(first[0], second[0]) and self._leaves(first[1], second[1]):
            return True
        try:
            return _factor(first[0] - first[1], second[0] - second[1]) is not None
        except _FAILURES:
            return False

    # --- Sets of numbers ----------------------------------------------------------------------------------------

    def _sets(self, a: list[Any], b: list[Any]) -> bool:
        (first, name), (second, other) = self._set(a), self._set(b)
        if first is None or second is None or (name and other and name != other):
            return False
        if isinstance(first, Interval) and isinstance(second, Interval):
            return (
                (first.left_open, first.right_open) == (second.left_open, second.right_open)
                and self._leaves(first.start, second.start)
                and self._leaves(first.end, second.end)
            )
        try:
            return bool(first == second or sympy.SymmetricDifference(first, second) == S.EmptySet)
        except _FAILURES:
            return False

    def _set(self, tree: list[Any]) -> tuple[Set | None, str]:
        """The real numbers that a structure stands for, and the variable it names."""
        kind = tree[0]
        try:
            if kind == "interval":
                return Interval(self._value(tree[1]), self._value(tree[2]), tree[3], tree[4]), ""
            if kind == "tuple" and len(tree[1]) == 2:
                return Interval.open(self._value(tree[1][0]), self._value(tree[1][1])), ""
            if kind in ("set", "list") and all(part[0] == "leaf" for part in tree[1]):
                return FiniteSet(*(self._value(part) for part in tree[1])), ""
            if kind in ("union", "and"):
                pairs = [self._set(_plain(part)) for part in tree[1]]
                names = {name for _, name in pairs if name}
                sets = [found for found, _ in pairs if found is not None]
                if len(sets) < len(pairs) or len(names) > 1:
                    return None, ""
                whole = sympy.Union(*sets) if kind == "union" else sympy.Intersection(*sets)
                return whole, next(iter(names), "")
            if kind == "relation":
                return self._solved(tree)
            if kind == "leaf" and isinstance(found := self._read(tree[1]), Set):
                return found, ""
        except _FAILURES:
            return None, ""
        return None, ""

    def _value(self, tree: list[Any]) -> Any:
        if tree[0] != "leaf":
            raise ValueError("no number")
        return self._read(tree[1])

    def _solved(self, tree: list[Any]) -> tuple[Set | None, str]:
        parts = [self._read(part) for part in tree[1]]
        symbols = set().union(*(part.free_symbols for part in parts))
        if len(symbols) != 1:
            return None, ""
        symbol = symbols.pop()
        real = Symbol(symbol.name, real=True)
        whole: Any = S.Reals
        build = {"<": sympy.Lt, ">": sympy.Gt, r"\le": sympy.Le, r"\ge": sympy.Ge, "=": sympy.Eq, r"\ne": sympy.Ne}
        for left, operator, right in zip(parts, tree[2], parts[1:], strict=False):
            relation = build[operator](left.xreplace({symbol: real}), right.xreplace({symbol: real}))
            whole = whole.intersect(relation.as_set())
        return whole, symbol.name


def _plain(tree: list[Any]) -> list[Any]:
    """A list of one thing is that thing."""
    while tree[0] in ("list", "union", "and", "set") and len(tree[1]) == 1:
        tree = tree[1][0]
    return tree


def _right_side(relation: list[Any]) -> list[Any] | None:
    from trinity_core.tasks.mathgrade import structure

    return structure(relation[1][-1])


def _close_at(a: Expr, b: Expr, symbols: set[Any]) -> bool:
    """Whether both have about the same value at a point; True also when that cannot be told."""
    points = dict(zip(sorted(symbols, key=str), _POINTS, strict=False))
    try:
        first, second = (complex(x.xreplace(points).evalf(30)) for x in (a, b))
    except _FAILURES:
        return True
    if first != first or second != second:
        return True
    return abs(first - second) <= 1e-9 * max(abs(first), abs(second), 1e-9)


def _tiny(size: Any) -> bool:
    return bool(size < sympy.Float(10) ** -DIGITS)


def _zero(difference: Expr) -> bool:
    try:
        return sympy.simplify(difference).is_zero is True
    except _FAILURES:
        return False


def _factor(a: Expr, b: Expr) -> Expr | None:
    """The number other than zero by which `b` has to be multiplied to give `a`; None when there is none."""
    a, b = sympy.expand(a), sympy.expand(b)
    if not a.free_symbols or a.free_symbols != b.free_symbols:
        return None
    ratio = sympy.simplify(a / b)
    return ratio if ratio.is_number and ratio.is_real and not ratio.is_zero else None
