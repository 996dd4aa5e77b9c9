"""Built-in questions of arithmetic and algebra. References are worked out exactly, in integers and fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from trinity_core.tasks.operation import Drawn, Operation, number


def _sum(rng: Random) -> Drawn:
    a, b = rng.randint(120, 990), rng.randint(35, 870)
    return {"a": a, "b": b}, str(a + b)


def _difference(rng: Random) -> Drawn:
    b, gap = rng.randint(25, 480), rng.randint(18, 500)
    return {"a": b + gap, "b": b}, str(gap)


def _product(rng: Random) -> Drawn:
    a, b = rng.randint(12, 98), rng.randint(6, 49)
    return {"a": a, "b": b}, str(a * b)


def _quotient(rng: Random) -> Drawn:
    b, q = rng.randint(4, 27), rng.randint(6, 64)
    return {"a": b * q, "b": b}, str(q)


def _percent(rng: Random) -> Drawn:
    p, whole = rng.choice((5, 10, 15, 20, 25, 30, 40, 60, 75, 80)), 20 * rng.randint(3, 45)
    return {"p": p, "n": whole}, number(Fraction(p * whole, 100))


def _linear(rng: Random) -> Drawn:
    a, x, b = rng.randint(2, 12), rng.randint(2, 25), rng.randint(3, 40)
    return {"a": a, "b": b, "c": a * x + b}, str(x)


def _expression(rng: Random) -> Drawn:
    a, b, c, d = rng.randint(3, 40), rng.randint(2, 12), rng.randint(2, 12), rng.randint(2, 9)
    return {"a": a, "b": b, "c": c, "d": d}, str(a + b * c - d)


def _bracket(rng: Random) -> Drawn:
    a, b, c = rng.randint(4, 30), rng.randint(3, 25), rng.randint(2, 9)
    return {"a": a, "b": b, "c": c}, str((a + b) * c)


def _power(rng: Random) -> Drawn:
    a, n = rng.choice(((rng.randint(11, 35), 2), (rng.randint(3, 9), 3), (rng.randint(2, 5), 5)))
    return {"a": a, "n": n}, str(a**n)


def _root(rng: Random) -> Drawn:
    a = rng.randint(6, 45)
    return {"n": a * a}, str(a)


def _average(rng: Random) -> Drawn:
    mean = rng.randint(10, 60)
    low, high = rng.randint(1, 9), rng.randint(1, 8)
    a, b, c = mean - low, mean + high, mean + low - high
    return {"a": a, "b": b, "c": c}, str(mean)


def _remainder(rng: Random) -> Drawn:
    b = rng.randint(5, 19)
    a = b * rng.randint(4, 40) + rng.randint(1, b - 1)
    return {"a": a, "b": b}, str(a % b)


def _common(rng: Random) -> Drawn:
    g, (p, q) = rng.randint(3, 15), rng.choice(((2, 3), (3, 4), (3, 5), (4, 5), (5, 7), (2, 7)))
    return {"a": g * p, "b": g * q}, str(math.gcd(g * p, g * q))


def _multiple(rng: Random) -> Drawn:
    a, b = rng.choice(((4, 6), (6, 8), (9, 12), (10, 15), (8, 12), (14, 21), (6, 15), (12, 18), (7, 5), (9, 6)))
    return {"a": a, "b": b}, str(math.lcm(a, b))


def _fractions(rng: Random) -> Drawn:
    a, b = rng.sample((2, 3, 4, 5, 6, 8), 2)
    p, q = (rng.choice([n for n in range(1, bottom) if math.gcd(n, bottom) == 1]) for bottom in (a, b))
    return {"a": f"{p}/{a}", "b": f"{q}/{b}"}, number(Fraction(p, a) + Fraction(q, b))


ARITHMETIC: tuple[Operation, ...] = (
    Operation(
        "add",
        _sum,
        (
            "What is {a} plus {b}?",
            "What's {a} + {b}?",
            "Add {a} and {b}.",
            "Calculate the sum of {a} and {b}.",
            "How much is {a} + {b}?",
            "A school has {a} girls and {b} boys. How many pupils is that altogether? Compute {a} + {b}.",
            "If I add {b} to {a}, what do I get?",
            "Please work out {a} + {b} for me.",
        ),
    ),
    Operation(
        "subtract",
        _difference,
        (
            "What is {a} minus {b}?",
            "What's {a} - {b}?",
            "Subtract {b} from {a}.",
            "Find the difference between {a} and {b}.",
            "How much is {a} take away {b}?",
            "I had {a} dollars and spent {b}. How much is {a} - {b}?",
            "Compute {a} − {b}.",
            "If you take {b} from {a}, what is left?",
        ),
    ),
    Operation(
        "multiply",
        _product,
        (
            "What is {a} times {b}?",
            "What's {a} x {b}?",
            "Multiply {a} by {b}.",
            "Find the product of {a} and {b}.",
            "How much is {a} * {b}?",
            "Calculate {a} × {b}, please.",
            "There are {a} boxes with {b} eggs in each. How many eggs are there? That's {a} * {b}.",
            "Can you tell me what {a} multiplied by {b} is?",
        ),
    ),
    Operation(
        "divide",
        _quotient,
        (
            "What is {a} divided by {b}?",
            "What's {a} / {b}?",
            "Divide {a} by {b}.",
            "How many times does {b} go into {a}?",
            "Calculate {a} ÷ {b}.",
            "Work out the quotient of {a} and {b}.",
            "If {a} sweets are shared equally among {b} children, how many does each child get?",
            "Please compute {a}/{b}.",
        ),
    ),
    Operation(
        "percent",
        _percent,
        (
            "What is {p}% of {n}?",
            "What's {p} percent of {n}?",
            "Calculate {p}% of {n}.",
            "Find {p} percent of {n}.",
            "How much is {p}% of {n}?",
            "I'd like to leave a {p}% tip. How much is {p}% of {n} dollars?",
            "Work out {p} % of {n}.",
            "Could you compute {p} percent of {n}?",
        ),
    ),
    Operation(
        "linear",
        _linear,
        (
            "Solve for x: {a}x + {b} = {c}",
            "If {a}x + {b} = {c}, what is x?",
            "Find x if {a}x + {b} = {c}.",
            "What value of x satisfies {a}x + {b} = {c}?",
            "Solve {a}*x + {b} = {c} for x.",
            "What's the solution of the equation {a}y + {b} = {c}?",
            "Given that {a}n + {b} = {c}, find n.",
            "I'm stuck on this equation: {a}x + {b} = {c}. What is x?",
        ),
    ),
    Operation(
        "expression",
        _expression,
        (
            "What is {a} + {b} * {c} - {d}?",
            "Evaluate {a} + {b} × {c} − {d}.",
            "Calculate {a} + {b}*{c} - {d}.",
            "What's the value of {a} + {b} * {c} - {d}?",
            "Work out {a} + {b} x {c} - {d}.",
            "How much is {a} + {b}*{c} - {d}?",
            "Simplify {a} + {b} * {c} - {d}.",
            "Please compute {a} + {b} · {c} - {d}.",
        ),
    ),
    Operation(
        "bracket",
        _bracket,
        (
            "What is ({a} + {b}) * {c}?",
            "Evaluate ({a} + {b}) × {c}.",
            "Calculate ({a} + {b})*{c}.",
            "What's {c} * ({a} + {b})?",
            "Work out {c}({a} + {b}).",
            "How much is ({a} + {b}) times {c}?",
            "Compute the value of {c} × ({a} + {b}).",
            "Find the value of ({a}+{b})*{c}.",
        ),
    ),
    Operation(
        "power",
        _power,
        (
            "What is {a} to the power of {n}?",
            "What's {a}^{n}?",
            "Calculate {a}**{n}.",
            "Raise {a} to the power {n}.",
            "Compute {a}^{n}.",
            "How much is {a} to the power of {n}?",
            "Evaluate {a}^{n}, please.",
            "Find the value of {a} raised to the {n}th power.",
        ),
    ),
    Operation(
        "root",
        _root,
        (
            "What is the square root of {n}?",
            "What's the square root of {n}?",
            "Calculate the square root of {n}.",
            "Find sqrt({n}).",
            "Compute √{n}.",
            "Which positive number squared gives {n}?",
            "How much is the square root of {n}?",
            "Please take the square root of {n}.",
        ),
    ),
    Operation(
        "average",
        _average,
        (
            "What is the average of {a}, {b} and {c}?",
            "What's the mean of {a}, {b} and {c}?",
            "Find the average of {a}, {b}, and {c}.",
            "Calculate the mean of {a}, {b}, {c}.",
            "Compute the average of the numbers {a}, {b} and {c}.",
            "I scored {a}, {b} and {c} points. What is the average of {a}, {b} and {c}?",
            "Work out the arithmetic mean of {a}, {b} and {c}.",
            "On average, how much are {a}, {b} and {c}?",
        ),
    ),
    Operation(
        "remainder",
        _remainder,
        (
            "What is the remainder when {a} is divided by {b}?",
            "What's the remainder of {a} divided by {b}?",
            "Find the remainder when you divide {a} by {b}.",
            "Calculate {a} mod {b}.",
            "What is {a} modulo {b}?",
            "If {a} is divided by {b}, what's the remainder?",
            "Work out the remainder of {a} / {b}.",
            "Compute {a} mod {b}, please.",
        ),
    ),
    Operation(
        "gcd",
        _common,
        (
            "What is the greatest common divisor of {a} and {b}?",
            "Find the GCD of {a} and {b}.",
            "What's the greatest common factor of {a} and {b}?",
            "Calculate gcd({a}, {b}).",
            "What is the highest common factor of {a} and {b}?",
            "Compute the GCD of {a} and {b}, please.",
            "Which is the largest number that divides both {a} and {b}?",
            "I need the greatest common divisor of {a} and {b}.",
        ),
    ),
    Operation(
        "lcm",
        _multiple,
        (
            "What is the least common multiple of {a} and {b}?",
            "Find the LCM of {a} and {b}.",
            "What's the lowest common multiple of {a} and {b}?",
            "Calculate lcm({a}, {b}).",
            "What is the smallest number that both {a} and {b} divide evenly?",
            "Compute the least common multiple of {a} and {b}.",
            "What is the LCM of {a} and {b}?",
            "Could you find the smallest common multiple of {a} and {b}?",
        ),
    ),
    Operation(
        "fractions",
        _fractions,
        (
            "What is {a} + {b}?",
            "Add the fractions {a} and {b}.",
            "What's {a} plus {b}? Give it as a fraction.",
            "Calculate the sum of {a} and {b} as a fraction.",
            "How much is {a} + {b} in total?",
            "Compute {a} + {b} exactly.",
            "One cup holds {a} of a liter and another {b} of a liter. What is {a} + {b}?",
            "What's the total of {a} and {b}?",
        ),
    ),
)
