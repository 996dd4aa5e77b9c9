"""Values of the `symbolic` specialist: operands read from words, results written for people.

A value is exact. It is written as a decimal where the question speaks in decimals or a quotient ends, else as a
fraction ("19/12"); roots and pi stay as they are ("sqrt(2)"), with an approximation beside them in the working.
"""

from __future__ import annotations

import re

import sympy
from sympy import Expr, Rational, Symbol

from trinity_core.agents.skills.formula import Formula, parse
from trinity_core.agents.skills.tokens import Unreadable
from trinity_core.agents.specialists import Solution


def number(text: str) -> Expr:
    expr = parse(text).expr
    if not expr.is_number or not expr.is_real:
        raise Unreadable("no number")
    return expr


def integer(text: str, most: int = 10**4000) -> int:
    value = number(text)
    if not value.is_Integer or abs(value) > most:
        raise Unreadable("no integer in range")
    return int(value)


def variable(expr: Expr, name: str | None = None) -> Symbol:
    """The named symbol, or the only one of `expr` (x where there are several)."""
    if name:
        return Symbol(name)
    symbols = sorted(expr.free_symbols, key=str)
    if len(symbols) > 1 and Symbol("x") in symbols:
        return Symbol("x")
    if len(symbols) != 1:
        raise Unreadable("which variable?")
    return symbols[0]


def shown(expr: Expr, decimal: bool = False) -> str:
    """`expr` as text: ^ for powers, i for the imaginary unit; terminating decimals when `decimal`."""
    if expr.is_Rational and decimal and not expr.is_Integer:
        places = _places(int(expr.q))
        if places is not None and places <= 15:
            return fixed(expr, places)
    return re.sub(r"\bI\b", "i", re.sub(r"\bE\b", "e", str(expr).replace("**", "^")))


def _places(denominator: int) -> int | None:
    """Decimal places of 1/denominator; None when they do not end."""
    twos = fives = 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    return max(twos, fives) if denominator == 1 else None


def fixed(value: Expr, places: int) -> str:
    """`value` rounded half away from zero, with exactly `places` decimals (negative: tens, hundreds, ...)."""
    exact = value if value.is_Rational else Rational(str(sympy.N(value, 60 + max(places, 0))))
    scaled = int(sympy.floor(abs(exact) * Rational(10) ** places + Rational(1, 2)))
    sign = "-" if exact < 0 and scaled else ""
    if places <= 0:
        return f"{sign}{scaled * 10**-places}"
    digits = str(scaled).rjust(places + 1, "0")
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


def about(expr: Expr) -> str:
    """ " ≈ 1.41421" for numbers whose exact form hides their size."""
    if expr.is_number and expr.is_real and not expr.is_Integer and not ends(expr):
        return f" ≈ {sympy.N(expr, 6)}"
    return ""


def ends(expr: Expr) -> bool:
    return bool(expr.is_Rational) and _places(int(expr.q)) is not None


def answer(value: str, working: str) -> Solution:
    working = working if len(working) <= 400 else working[:399] + "…"
    return Solution(value, working)


def computed(left: str, expr: Expr, decimal: bool = False) -> Solution:
    value = shown(expr, decimal)
    if len(value) > 4000:
        raise Unreadable("too long to show")
    return answer(value, f"{left} = {value}{about(expr)}")


def yes_or_no(yes: bool, why: str) -> Solution:
    return Solution("Yes" if yes else "No", why)


def in_decimals(formula: Formula) -> bool:
    """Fractions are for questions that compute with fractions; elsewhere a quotient that ends is a decimal."""
    single = re.fullmatch(r"-?\d+\s*/\s*\d+", formula.shown)
    return formula.decimal or bool(single) or not re.search(r"\d\s*/\s*\d", formula.shown)


def manageable(expr: Expr) -> Expr:
    """`expr`. Raises Unreadable when rewriting it could take long: many operations, high powers, functions of
    functions."""
    powers = [p for p in expr.atoms(sympy.Pow) if not p.base.is_Rational]
    functions = expr.atoms(sympy.Function) | {p for p in powers if not p.exp.is_Integer}
    degree = sum(abs(int(p.exp)) for p in powers if p.exp.is_Integer)
    if expr.count_ops() > 45 or degree > 40 or len(functions) > 5:
        raise Unreadable("too complex")
    if any(f.args[0].atoms(sympy.Function) for f in functions):
        raise Unreadable("too complex")
    return expr


def simplified(expr: Expr) -> Expr:
    """`expr` simplified. Raises Unreadable when that could take long."""
    return sympy.simplify(manageable(expr))
