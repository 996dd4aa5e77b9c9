r"""Arithmetic and algebra as people write it, read into SymPy by a parser of our own.

Reads symbols ("(3+4)*5^2", "2x + 3", "\frac{3}{4}", "x²", "½") and words ("twelve plus thirty", "half of 90", "the
product of 6 and 9", "5 more than 3 times 4"), mixed and nested. Nothing is ever evaluated as Python: a token is a
number, one of the fixed words below or a single letter, or else the text is Unreadable.

Invariants: arithmetic is exact (decimals become rationals); every power and factorial is measured before it is
computed, so no text can ask for a number of more than MAX_BITS; nesting and length are bounded.
Where English is ambiguous ("the sum of 2 and 3 times 4"), the text is Unreadable rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Expr, Integer, Rational

from trinity_core.agents.skills.tokens import Token, Unreadable, normal, tokens

MAX_BITS = 12_000
"""Size of the largest integer computed (numerator or denominator), in bits: about 3,600 digits."""
MAX_DEPTH = 30
MAX_CHARS = 1_500


@dataclass(frozen=True, slots=True)
class Formula:
    """What a text says. `decimal`: it has a decimal point or a percentage, so that people expect one back;
    `shown`: its symbols as one line, for the working; `trivial`: a bare number or letter, nothing to compute."""

    expr: Expr
    decimal: bool
    shown: str
    trivial: bool


# --- Guarded arithmetic -------------------------------------------------------------------------------------


def checked(expr: Any) -> Expr:
    """`expr`, unless it is too large, infinite or undefined."""
    if not isinstance(expr, Expr) or expr.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        raise Unreadable("undefined")
    if any(max(int(n.p).bit_length(), int(n.q).bit_length()) > MAX_BITS for n in expr.atoms(Rational)):
        raise Unreadable("too large")
    return expr


def power(base: Expr, exponent: Expr) -> Expr:
    """base^exponent, measured before it is computed."""
    if base.is_Rational and exponent.is_Rational:
        bits = max(int(base.p).bit_length(), int(base.q).bit_length())
        if (bits - (base.q == 1)) * abs(exponent) > MAX_BITS or exponent.q > 12:
            raise Unreadable("too large")
        if (base == 0 and exponent <= 0) or (base < 0 and exponent.q != 1):
            raise Unreadable("undefined")
    elif exponent.is_Rational:
        if abs(exponent) > 60:
            raise Unreadable("too large")
    elif exponent.is_number and abs(sympy.N(exponent, 5)) > 60:
        raise Unreadable("too large")
    return checked(base**exponent)


def factorial(n: Expr) -> Expr:
    if not (n.is_Integer and 0 <= n <= 1000):
        raise Unreadable("factorial")
    return sympy.factorial(n)


def divide(a: Expr, b: Expr) -> Expr:
    if b == 0:
        raise Unreadable("division by zero")
    return checked(a / b)


def _median(items: Sequence[Expr]) -> Expr:
    ordered, middle = sorted(items), len(items) // 2
    return ordered[middle] if len(items) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _integers(items: Sequence[Expr]) -> Sequence[Expr]:
    if not all(i.is_Integer and i != 0 for i in items):
        raise Unreadable("integers needed")
    return items


def _two(items: Sequence[Expr]) -> tuple[Expr, Expr]:
    if len(items) != 2:
        raise Unreadable("two values needed")
    return items[0], items[1]


_MULTIPLES = {"doubled": 2, "tripled": 3, "halved": Rational(1, 2)}
_LISTS: dict[str, Callable[[Sequence[Expr]], Expr]] = {
    "gcd": lambda items: Integer(sympy.igcd(*_integers(items))),
    "lcm": lambda items: Integer(sympy.ilcm(*_integers(items))),
    "mean": lambda items: sum(items, Integer(0)) / len(items),
    "median": _median,
    "sum": lambda items: sum(items, Integer(0)),
    "product": lambda items: sympy.prod(items),
    "difference": lambda items: _two(items)[0] - _two(items)[1],
    "gap": lambda items: sympy.Abs(_two(items)[0] - _two(items)[1]),
    "quotient": lambda items: divide(*_two(items)),
    "max": lambda items: max(items),
    "min": lambda items: min(items),
    "range": lambda items: max(items) - min(items),
}
_SYMBOLIC_LISTS = ("sum", "product", "difference", "quotient", "mean")

_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{"sqrt": sympy.sqrt, "cbrt": sympy.cbrt, "ln": sympy.log, "exp": sympy.exp, "abs": sympy.Abs},
    **{"sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec, "csc": sympy.csc},
    **{"asin": sympy.asin, "acos": sympy.acos, "atan": sympy.atan},
    **{"arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan},
    **{"sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh},
    "square": lambda x: power(x, Integer(2)),
    "cube": lambda x: power(x, Integer(3)),
    "factorial": lambda x: factorial(x),
    "reciprocal": lambda x: divide(Integer(1), x),
    "double": lambda x: 2 * x,
    "triple": lambda x: 3 * x,
    "quadruple": lambda x: 4 * x,
    "halve": lambda x: x / 2,
    "negative": lambda x: -x,
}


# --- Grammar ------------------------------------------------------------------------------------------------


def parse(text: str) -> Formula:
    """What `text` says. Raises Unreadable."""
    if len(text) > MAX_CHARS:
        raise Unreadable("too long")
    plain = normal(text)
    found = tokens(plain)
    expr = _Parser(found).whole()
    decimal = any(t.value == "%" for t in found) or bool(re.search(r"\d\.\d", plain))
    trivial = len(found) <= 2 and all(t.kind in ("num", "sym") or t.value == "-" for t in found)
    return Formula(expr, decimal, plain, trivial)


class _Parser:
    """Recursive descent over the tokens; one instance reads one text.

    compared = sum [more|less|from|off compared]; sum = term {+ - up down term}; term = factor {* / mod of, or
    nothing, factor}; factor = signs power; power = atom postfixes [^ factor].
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0
        self._percent = False  # the operand read last was a percentage
        self._plain_only = 0  # inside the last item of a list: spoken operators belong to the list

    def whole(self) -> Expr:
        expr = self._compared()
        if self._at < len(self._tokens):
            raise Unreadable("more than one formula")
        return checked(expr)

    def _next(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else Token("end", "")

    def _takes(self, kind: str, *values: Any) -> Any:
        """The value of the next token, taken, if it is of this kind and one of `values`; else None."""
        token = self._next()
        if token.kind != kind or token.value not in values or (token.spoken and kind == "op" and self._plain_only):
            return None
        self._at += 1
        return token.value

    def _compared(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("too deep")
        left = self._sum()
        percent = self._percent
        if how := self._takes("op", "more", "less", "from", "off"):
            right = self._compared()
            part = left * right if percent else left
            if how == "off" and not percent:
                raise Unreadable("off needs a percentage")
            left = right + part if how == "more" else right - part
            self._percent = False
        self._depth -= 1
        return checked(left)

    def _sum(self) -> Expr:
        left = self._term()
        while sign := self._takes("op", "+", "-", "up", "down"):
            before = self._percent
            right = self._term()
            if sign in ("up", "down") and self._percent:
                right = left * right
            elif self._percent != before:
                raise Unreadable("a number and a percentage")
            left = left + right if sign in ("+", "up") else left - right
            self._percent = self._percent and before
        return checked(left)

    def _term(self) -> Expr:
        left = self._factor()
        while True:
            if self._shares() and self._takes("mark", "of"):
                left = left * self._factor()
                continue
            elif sign := self._takes("op", "*", "×", "/", "mod", "choose"):
                left = _combined(sign, left, self._factor())
            elif self._glued():
                left = left * self._power()
            else:
                return checked(left)
            self._percent = False

    def _shares(self) -> bool:
        """Whether a percentage, "a third" or "2/3" was read last, which "of" may follow."""
        kinds = [t.kind if t.kind != "op" else t.value for t in self._tokens[max(self._at - 3, 0) : self._at]]
        return self._percent or kinds[-1:] == ["part"] or kinds == ["num", "/", "num"]

    def _glued(self) -> bool:
        """Whether the next token multiplies the previous one without a sign: 2x, 3(4+5), x sin x."""
        token, before = self._next(), self._tokens[self._at - 1]
        if token.kind in ("sym", "fn") or (token.kind == "log" and not token.spoken):
            return not token.spoken
        if (token.kind, token.value) != ("op", "("):
            return False
        if before.kind == "sym" and str(before.value) in ("f", "g", "h"):
            raise Unreadable("a function")
        return before.kind in ("num", "sym") or before.value == ")"

    def _factor(self) -> Expr:
        if sign := self._takes("op", "-", "+"):
            self._refuse_spoken_square()
            inner = self._factor()
            return -inner if sign == "-" else inner
        return self._power()

    def _refuse_spoken_square(self) -> None:
        """ "-5 squared" is 25 to some and -25 to others; "-5^2" is -25."""
        if self._next().kind == "num" and any(
            t.value in ("squared", "cubed") for t in self._tokens[self._at + 1 :][:1]
        ):
            raise Unreadable("ambiguous")

    def _power(self) -> Expr:
        base = self._postfixed(self._atom())
        if self._takes("op", "^"):
            exponent = self._nested(self._factor)
            self._percent = False
            return power(base, exponent)
        return base

    def _postfixed(self, base: Expr) -> Expr:
        while (token := self._next()).kind == "post":
            self._at += 1
            if token.value == "!":
                base = factorial(base)
            elif token.value in _MULTIPLES:
                base = base * _MULTIPLES[token.value]
            elif token.value == "degrees":
                base = base * sympy.pi / 180
            elif token.value == "%" and not token.spoken and self._starts_atom():
                base = _combined("mod", base, self._factor())
            elif token.value == "%":
                base, self._percent = base / 100, True
            else:
                base = power(base, Integer({"squared": 2, "cubed": 3}.get(token.value, token.value)))
        return base

    def _starts_atom(self) -> bool:
        token = self._next()
        return token.kind in ("num", "sym") or (token.kind, token.value) == ("op", "(")

    def _nested(self, read: Callable[[], Expr]) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("too deep")
        found = read()
        self._depth -= 1
        return found

    def _atom(self) -> Expr:
        token = self._next()
        self._at += 1
        if (token.kind, token.value) == ("op", "("):  # "(15%)" is a percentage, too
            outer, self._plain_only = self._plain_only, 0
            inner = self._compared()
            self._plain_only = outer
            self._expect(")")
            return inner
        found = self._operand(token)
        self._percent = False
        return found

    def _operand(self, token: Token) -> Expr:
        if token.kind in ("num", "sym", "part"):
            return token.value
        if (token.kind, token.value) == ("op", "|"):
            inner = self._compared()
            self._expect("|")
            return sympy.Abs(inner)
        if token.kind == "list":
            return self._nested(lambda: self._list(token.value))
        if token.value == "negative":
            self._refuse_spoken_square()
        if token.kind in ("fn", "log", "root"):
            return self._nested(lambda: self._applied(token))
        if token.kind == "scale":
            return _FUNCTIONS[token.value](self._nested(self._factor))
        raise Unreadable(f"unexpected {token.value!r}")

    def _expect(self, sign: str) -> None:
        if not self._takes("op", sign):
            raise Unreadable(f"{sign} is missing")

    def _applied(self, token: Token) -> Expr:
        exponent = self._factor() if token.kind == "fn" and self._takes("op", "^") else None  # sin^2 x
        self._takes("mark", "of")
        spoken = token.spoken
        inner = self._factor() if (self._next().kind, self._next().value) == ("op", "-") else self._power()
        while not spoken and self._next().kind == "sym" and self._tokens[self._at - 1].value != ")":  # sin 2x
            inner = inner * self._power()
        if token.kind == "root":
            found = _root(inner, token.value)
        elif token.kind == "log":
            base = token.value or (10 if inner.is_Rational else 0)
            found = sympy.log(_positive(inner), base) if base else sympy.log(_positive(inner))
        else:
            found = _FUNCTIONS[token.value](_positive(inner) if token.value == "ln" else inner)
        if token.value == "cbrt":
            found = _root(inner, 3)
        return checked(found if exponent is None else power(found, exponent))

    def _list(self, name: str) -> Expr:
        bracket = self._opens_list()
        if bracket:
            self._at += 1
        items = [self._item()]
        while self._separator():
            items.append(self._item())
        if bracket:
            self._expect(")")
        if len(items) < 2:
            raise Unreadable("one value is no list")
        if not all(i.is_Rational for i in items) and name not in _SYMBOLIC_LISTS:
            raise Unreadable("numbers needed")
        return checked(_LISTS[name](items))

    def _opens_list(self) -> bool:
        """Whether a bracket follows that holds several values: gcd(84, 36)."""
        if (self._next().kind, self._next().value) != ("op", "("):
            return False
        depth = 0
        for token in self._tokens[self._at :]:
            depth += (token.value == "(") - (token.value == ")")
            if depth == 1 and token.value in (",", "and"):
                return True
            if depth == 0:
                return False
        return False

    def _separator(self) -> bool:
        comma = self._takes("op", ",") is not None
        return self._takes("mark", "and") is not None or comma

    def _item(self) -> Expr:
        """One value of a list. A spoken operator after it belongs to it only if another value follows."""
        start = self._at
        self._plain_only += 1
        item = self._sum()
        self._plain_only -= 1
        token = self._next()
        if self._plain_only or token.kind != "op" or not token.spoken:
            return item
        stop = self._at
        self._at = start
        whole = self._sum()
        if self._next().value in (",", "and"):
            return whole
        if token.value == "*" and any(t.value in ("sum", "difference", "gap") for t in self._tokens[:start]):
            raise Unreadable("ambiguous")
        self._at = stop
        return item


def _combined(sign: str, a: Expr, b: Expr) -> Expr:
    if sign in ("*", "×"):
        return checked(a * b)
    if sign == "/":
        return divide(a, b)
    if not (a.is_Integer and b.is_Integer and (b > 0 if sign == "mod" else 0 <= b <= a <= 3000)):
        raise Unreadable("integers needed")
    return a % b if sign == "mod" else sympy.binomial(a, b)


def _root(value: Expr, degree: int) -> Expr:
    if not 2 <= degree <= 20:
        raise Unreadable("no such root")
    if value.is_Rational and value < 0:
        if degree % 2 == 0:
            raise Unreadable("undefined")
        return -((-value) ** Rational(1, degree))
    return value ** Rational(1, degree)


def _positive(value: Expr) -> Expr:
    if value.is_number and not value.is_positive:
        raise Unreadable("undefined")
    return value
