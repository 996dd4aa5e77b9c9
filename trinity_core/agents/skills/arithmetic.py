"""Questions about numbers that are no formula: divisors, primes, digits, series, percentages, forms, rounding.

`RULES` pairs a wording (a regular expression for the whole cleaned question) with the function that answers it. A
rule returns None, or raises what SymPy or `formula` raise, when the operands are not what the wording needs.
"""

from __future__ import annotations

import re
from itertools import pairwise

import sympy

from trinity_core.agents.skills.formula import checked
from trinity_core.agents.skills.tokens import ORDINALS, normal, ordinal
from trinity_core.agents.skills.values import about, computed, ends, fixed, integer, number, shown, yes_or_no
from trinity_core.agents.specialists import Solution

MAX_FACTORED = 10**24
"""Largest number that is factored."""


# --- Number theory ------------------------------------------------------------------------------------------


def _is_prime(match: re.Match[str]) -> Solution:
    n = integer(match["a"], 10**60)
    prime = bool(sympy.isprime(n))
    composite = match["kind"].lower().startswith("composite")
    if prime:
        why = f"{n} has no divisors but 1 and itself, so it is prime."
    elif n > 1 and n <= MAX_FACTORED:
        why = f"{n} = {_product(n)}, so it is not prime."
    else:
        why = f"{n} is not prime."
    return yes_or_no(prime != composite if n > 1 else False, why)


def _product(n: int) -> str:
    return " × ".join(f"{p}^{k}" if k > 1 else str(p) for p, k in sorted(sympy.factorint(n).items()))


def _has_property(match: re.Match[str]) -> Solution:
    n, kind = integer(match["a"], 10**600), match["kind"].lower()
    if kind in ("even", "odd"):
        return yes_or_no((n % 2 == 0) == (kind == "even"), f"{n} divided by 2 leaves {n % 2}.")
    if "square" in kind:
        root = int(sympy.integer_nthroot(n, 2)[0]) if n >= 0 else 0
        return yes_or_no(n >= 0 and root**2 == n, f"{root}^2 = {root**2}")
    root = int(sympy.integer_nthroot(abs(n), 3)[0]) * (1 if n >= 0 else -1)
    return yes_or_no(root**3 == n, f"{root}^3 = {root**3}")


def _divisible(match: re.Match[str]) -> Solution | None:
    n, d = integer(match["a"]), integer(match["b"])
    return yes_or_no(n % d == 0, f"{n} divided by {d} leaves {n % d}.") if d else None


def _prime_factors(match: re.Match[str]) -> Solution | None:
    n = integer(match["a"], MAX_FACTORED)
    if n < 2:
        return None
    factors = sympy.factorint(n)
    if "factori" in match["kind"].lower() or "product" in match.group().lower():
        return Solution(_product(n), f"{n} = {_product(n)}")
    names = ", ".join(str(p) for p in sorted(factors))
    if match.groupdict().get("many"):
        return Solution(str(len(factors)), f"{n} = {_product(n)}; its distinct prime factors are {names}.")
    wanted = (match.groupdict().get("size") or "").lower()
    if wanted:
        pick = max(factors) if wanted in ("largest", "greatest", "biggest") else min(factors)
        return Solution(str(pick), f"{n} = {_product(n)}")
    return Solution(names, f"{n} = {_product(n)}")


def _divisors(match: re.Match[str]) -> Solution | None:
    n = integer(match["a"], 10**12)
    if n < 1:
        return None
    found = sympy.divisors(n)
    listed = ", ".join(map(str, found[:60]))
    if match.groupdict().get("many"):
        return Solution(str(len(found)), f"The divisors of {n} are {listed}.")
    return Solution(listed, f"{n} has {len(found)} divisors.") if len(found) <= 60 else None


def _nth(match: re.Match[str]) -> Solution | None:
    n, kind = ordinal(match["n"]), match["kind"].lower()
    if not 1 <= n <= 5000:
        return None
    if kind.startswith("prime"):
        return Solution(str(sympy.prime(n)), f"Prime number {n} is {sympy.prime(n)}.")
    if kind.startswith("fib"):
        return Solution(str(sympy.fibonacci(n)), f"With F(1) = F(2) = 1, F({n}) = {sympy.fibonacci(n)}.")
    if kind.startswith("triang"):
        return Solution(str(n * (n + 1) // 2), f"{n} × {n + 1} / 2 = {n * (n + 1) // 2}")
    value = {"even": 2 * n, "odd": 2 * n - 1, "squar": n**2, "cube": n**3, "perfe": n**2}[kind[:5].strip()]
    return Solution(str(value), f"Number {n} of its kind is {value}.")


def _near_prime(match: re.Match[str]) -> Solution | None:
    n = integer(match["a"], 10**30)
    up = match["side"].lower() in ("after", "greater than", "larger than", "above", "bigger than")
    if not up and n < 3:
        return None
    found = sympy.nextprime(n) if up else sympy.prevprime(n)
    return Solution(str(found), f"{found} is the nearest prime {'above' if up else 'below'} {n}.")


def _digits(match: re.Match[str]) -> Solution | None:
    n = abs(integer(match["a"]))
    digits = str(n)
    joined = " + ".join(digits) if len(digits) <= 40 else "the digits"
    kind = match["kind"].lower()
    if "sum" in kind or kind == "add up":
        return Solution(str(sum(map(int, digits))), f"{joined} = {sum(map(int, digits))}")
    if "product" in kind:
        return Solution(str(sympy.prod(map(int, digits))), f"{joined.replace('+', '×')}")
    return Solution(str(len(digits)), f"{digits if len(digits) <= 60 else 'It'} has {len(digits)} digits.")


def _series(match: re.Match[str]) -> Solution | None:
    """Sums of runs of integers: the first n of a kind, or those of a kind from a to b."""
    kind = (match.groupdict().get("kind") or "").lower()
    step = 2 if kind.startswith(("odd", "even")) else 1
    if count := match.groupdict().get("count"):
        n = integer(count, 10**6)
        first, last = (2, 2 * n) if kind.startswith("even") else (1, 2 * n - 1) if step == 2 else (1, n)
        if kind.startswith("prime"):
            values = [int(sympy.prime(i)) for i in range(1, n + 1)] if n <= 2000 else []
            return Solution(str(sum(values)), f"The first {n} primes end with {values[-1]}.") if values else None
    else:
        first, last = integer(match["a"], 10**9), integer(match["b"], 10**9)
        if kind.startswith("prime"):
            values = list(sympy.primerange(first, last + 1)) if last <= 10**5 else []
            return Solution(str(sum(values)), " + ".join(map(str, values[:30]))) if values else None
        if step == 2:
            first += (first % 2 == 0) == kind.startswith("odd")
            last -= (last % 2 == 0) == kind.startswith("odd")
    if last < first:
        return None
    k = sympy.Symbol("k", integer=True)
    terms = (last - first) // step + 1
    term = first + step * (k - 1)
    degree = 2 if "square" in match.group().lower() else 3 if "cube" in match.group().lower() else 1
    total = checked(sympy.summation(term**degree, (k, 1, terms)))
    power = f"^{degree}" if degree > 1 else ""
    return Solution(
        str(total), f"{first}{power} + {first + step}{power} + … + {last}{power} ({terms} terms) = {total}"
    )


def _goes_into(match: re.Match[str]) -> Solution | None:
    d, n = integer(match["a"]), integer(match["b"])
    return Solution(str(n // d), f"{n} = {d} × {n // d} + {n % d}") if d > 0 <= n else None


def _remainder(match: re.Match[str]) -> Solution | None:
    n, d = integer(match["a"]), integer(match["b"])
    return Solution(str(n % d), f"{n} = {d} × {n // d} + {n % d}") if d > 0 else None


def _next_term(match: re.Match[str]) -> Solution | None:
    terms = [number(part) for part in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", match["list"].strip(" ,.…_?"))]
    if len(terms) < 3:
        return None
    gaps = {b - a for a, b in pairwise(terms)}
    if len(gaps) == 1:
        return computed(f"{shown(terms[-1])} + {shown(gaps.copy().pop())}", terms[-1] + gaps.pop(), True)
    ratios = {b / a for a, b in pairwise(terms)} if all(terms) else set()
    if len(ratios) == 1:
        return computed(f"{shown(terms[-1])} × {shown(ratios.copy().pop())}", terms[-1] * ratios.pop(), True)
    bends = {b - a for a, b in pairwise([b - a for a, b in pairwise(terms)])}
    if len(terms) >= 4 and len(bends) == 1:
        gap = terms[-1] - terms[-2] + bends.pop()
        return computed(f"{shown(terms[-1])} + {shown(gap)}", terms[-1] + gap, True)
    if len(terms) >= 5 and all(c == a + b for a, b, c in zip(terms, terms[1:], terms[2:], strict=False)):
        return computed(f"{shown(terms[-2])} + {shown(terms[-1])}", terms[-2] + terms[-1], True)
    return None


# --- Percentages, forms, rounding ---------------------------------------------------------------------------


def _what_percent(match: re.Match[str]) -> Solution | None:
    part, whole = number(match["part"]), number(match["whole"])
    if whole == 0:
        return None
    value = shown(part / whole * 100, True) + "%"
    return Solution(value, f"{shown(part, True)} / {shown(whole, True)} × 100 = {value}{about(part / whole * 100)}")


def _of_what(match: re.Match[str]) -> Solution | None:
    part, share = number(match["part"]), number(match["share"])
    return computed(f"{shown(part, True)} / {shown(share, True)}", part / share, True) if share else None


def _change(match: re.Match[str]) -> Solution | None:
    old, new = number(match["a"]), number(match["b"])
    if old == 0:
        return None
    change = (new - old) / old * 100
    kind = (match["kind"] or "change").lower()
    if kind.startswith(("decrease", "drop", "reduc", "loss", "discount")):
        change = -change
    value = shown(change, True) + "%"
    return Solution(value, f"({shown(new, True)} - {shown(old, True)}) / {shown(old, True)} × 100 = {value}")


def _convert(match: re.Match[str]) -> Solution | None:
    target = match["to"].lower()
    value = number(re.sub(r"(?i)^(?:the )?(?:fraction|decimal|percentage|number)\s+", "", match["a"]))
    source = normal(match["a"])
    if "percent" in target:
        text = shown(value * 100, True) + "%"
    elif "decimal" in target:
        text = shown(value, True) if ends(value) or value.is_Integer else fixed(value, 6)
        if not ends(value):
            return Solution(text, f"{source} ≈ {text}")
    elif "mixed" in target:
        whole, part = divmod(abs(value), 1)
        text = f"{'-' if value < 0 else ''}{f'{whole} ' if whole else ''}{part if part else ''}".strip()
    elif "binary" in target or "hex" in target or "octal" in target:
        if not value.is_Integer or value < 0:
            return None
        text = format(int(value), "b" if "binary" in target else "X" if "hex" in target else "o")
    else:
        if not value.is_Rational:
            return None
        text = str(value)
    return Solution(text, f"{source} = {text}")


def _from_base(match: re.Match[str]) -> Solution:
    base = {"b": 2, "h": 16, "o": 8}[match["base"][0].lower()]
    value = int(match["a"], base)
    return Solution(str(value), f"{match['a']} in base {base} is {value}.")


_NEAREST = {
    **{"whole number": 0, "integer": 0, "unit": 0, "one": 0, "dollar": 0, "ten": -1, "hundred": -2, "thousand": -3},
    **{"million": -6, "tenth": 1, "hundredth": 2, "thousandth": 3, "cent": 2, "penny": 2},
}


def _round(match: re.Match[str]) -> Solution | None:
    value = number(match["a"])
    if match["near"]:
        places = _NEAREST[match["near"].lower().rstrip("s")]
    else:
        places = integer(match["n"], 50)
        if match["unit"].lower().startswith("s"):  # significant
            size = int(sympy.floor(sympy.log(abs(value), 10))) + 1 if value else 1
            places -= size
    text = fixed(value, places)
    return Solution(text, f"{normal(match['a'])}{about(value)} rounds to {text}.")


# --- Comparing ----------------------------------------------------------------------------------------------


def _which(match: re.Match[str]) -> Solution | None:
    parts = [p for p in re.split(r"\s*(?:,|\bor\b|\band\b)\s*(?:or\s+|and\s+)?", match["list"].strip(" ,:?")) if p]
    values = [number(part) for part in parts]
    if len(values) < 2 or len(set(values)) < len(values):
        return None
    most = match["size"].lower() in (
        "larger",
        "largest",
        "greater",
        "greatest",
        "bigger",
        "biggest",
        "higher",
        "highest",
    )
    pick = parts[values.index(max(values) if most else min(values))]
    sizes = ", ".join(
        f"{p} = {shown(v, True)}{about(v)}" for p, v in zip(parts, values, strict=True) if shown(v) != p
    )
    return Solution(pick, f"{sizes}. So {pick}." if sizes else f"{pick} is the {match['size'].lower()}.")


def _is_it(match: re.Match[str]) -> Solution:
    a, b = number(match["a"]), number(match["b"])
    how = match["how"].lower()
    sign = (
        "="
        if how in ("=", "==") or "equal" in how or "same" in how
        else ">"
        if re.search(r"more|greater|larger|bigger|higher|>", how)
        else "<"
    )
    yes = {"=": a == b, ">": a > b, "<": a < b}[sign]
    relation = "=" if a == b else ">" if a > b else "<"
    return yes_or_no(bool(yes), f"{shown(a, True)} {relation} {shown(b, True)}")


# --- Wordings -----------------------------------------------------------------------------------------------

ASK = (
    r"(?:(?:what(?:['’]?s| is| are)?|how much is|calculate|compute|evaluate|find|work out|determine"
    r"|give(?: me)?|list|show(?: me)?"
    r"|name|count|get|take|tell me|express|write)\s+)?(?:all\s+)?(?:of\s+)?(?:the\s+)?(?:value of\s+)?(?:the\s+)?"
)
_WHETHER = (
    r"(?:is|check (?:if|whether)|test (?:if|whether)|(?:tell me )?(?:if|whether)|determine "
    r"(?:if|whether))\s+(?:it true that\s+)?(?:the number\s+)?"
)
_A, _B = r"(?P<a>.+?)", r"(?P<b>.+?)"
_IS = r"(?:\s+is)?\s+"
_PC = r"(?:per ?cent|percentage|%)"
_SIZE = (
    r"(?P<size>larger|largest|greater|greatest|bigger|biggest|higher|highest|smaller|smallest"
    r"|less|lesser|least|lower|lowest)"
)
_KINDS = r"(?P<kind>odd |even |prime |natural |positive |whole |counting |positive even |positive odd )?"
_NUMBERS = r"(?:numbers|integers|primes|whole numbers|natural numbers)"

RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), handler)
    for pattern, handler in (
        (
            rf"{_WHETHER}{_A}{_IS}(?:a |an )?(?P<kind>prime|composite)(?: number)?(?: or not)?(?: or composite)?",
            _is_prime,
        ),
        (
            (
                rf"{_WHETHER}{_A}{_IS}(?:a |an )?(?P<kind>even|odd|perfect square|square|perfect cube|cube)(?: "
                r"number)?(?: or not)?"
            ),
            _has_property,
        ),
        (rf"{_WHETHER}{_A}{_IS}(?:evenly |exactly )?divisible by {_B}", _divisible),
        (rf"{_WHETHER}{_A}{_IS}a multiple of {_B}", _divisible),
        (rf"(?:does|do) {_B} divide {_A}(?: evenly| exactly)?", _divisible),
        (rf"{_WHETHER}{_B} a (?:factor|divisor) of {_A}", _divisible),
        (
            rf"{ASK}(?P<many>number of |how many )?(?:distinct )?(?:(?P<size>largest|greatest|biggest"
            r"|smallest|least) )?"
            r"prime (?P<kind>factori[sz]ation|decomposition|factors?|divisors?)(?: (?:of|does|are there "
            rf"of|for)) {_A}(?: have)?",
            _prime_factors,
        ),
        (
            rf"(?P<kind>factori[sz]e|factor) {_A}(?: into (?:a product of )?primes?(?: factors)?)?",
            _prime_factors,
        ),
        (
            rf"(?P<kind>write|express) {_A} as a product of (?:its )?primes?(?: factors)?",
            _prime_factors,
        ),
        (
            (
                rf"{ASK}(?P<many>number of |how many )?(?:positive )?(?:factors|divisors)(?: (?:of|does"
                rf"|do)) {_A}(?: have)?"
            ),
            _divisors,
        ),
        (
            (
                rf"{ASK}(?P<n>(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)})) (?P<kind>prime|fibonacci|triangular"
                r"|even|odd|square|perfect square|cube)(?: number)?"
            ),
            _nth,
        ),
        (
            (
                rf"{ASK}(?:next|smallest|first|largest|biggest|last|closest)?\s*prime(?: number)? (?P<side>after"
                rf"|before|greater than|larger than|above|bigger than|less than|smaller than|below) {_A}"
            ),
            _near_prime,
        ),
        (
            rf"(?P<kind>how many digits) (?:are (?:there )?in|does|has) (?:the number )?{_A}(?: have| contain)?",
            _digits,
        ),
        (
            rf"{ASK}(?P<kind>(?:sum|product|number) of(?: all)?(?: the)? digits) (?:of|in) (?:the number )?{_A}",
            _digits,
        ),
        (rf"{ASK}(?P<kind>digit sum) of {_A}", _digits),
        (rf"(?P<kind>add up|sum) (?:all )?(?:the )?digits (?:of|in) {_A}", _digits),
        (
            rf"(?:{ASK}sum of|add(?: up)?|sum)(?: all)?(?: of)?(?: the)? first (?P<count>[\w-]+) {_KINDS}{_NUMBERS}",
            _series,
        ),
        (
            rf"{ASK}sum of(?: the)? (?:squares|cubes) of(?: the)? first (?P<count>[\w-]+) {_KINDS}{_NUMBERS}",
            _series,
        ),
        (
            rf"(?:{ASK}sum of|add(?: up)?|sum)(?: all)?(?: of)?(?: the)? (?:squares of |cubes of )?(?:the "
            rf")?{_KINDS}{_NUMBERS}(?: from| between)?"
            rf" (?P<a>[\w,]+) (?:to|and|through|up to) (?P<b>[\w,]+)(?:,? inclusive)?",
            _series,
        ),
        (rf"{ASK}sum (?:of|from) (?P<a>[\w,]+) to (?P<b>[\w,]+)", _series),
        (
            (
                rf"{ASK}remainder (?:when|if|of|after|from|for)?\s*(?:you divide |dividing )?{_A}(?: is)? "
                rf"(?:divided by|by|/|÷) {_B}"
            ),
            _remainder,
        ),
        (rf"{ASK}remainder when dividing {_A} by {_B}", _remainder),
        (rf"{_A} divided by {_B} (?:leaves|has|gives) (?:what|which) remainder", _remainder),
        (r"how many (?P<a>\d+)['’]?s (?:fit|go)(?: in| into) (?P<b>\d+)", _goes_into),
        (rf"how many (?:whole )?times (?:does|can|will) {_A} (?:go|fit|divide) (?:evenly )?into {_B}", _goes_into),
        (
            r"(?:(?:what(?:['’]?s| is| comes| number comes)?|find|give|which (?:number )?(?:is|comes)"
            r"|continue)\s+)?(?:the )?(?:next(?: number| term| one)?|sequence)"
            r"(?: in| of| comes)?(?: the| this)?(?: following)?(?: arithmetic| geometric)?(?: number)?(?: "
            r"sequence| series| pattern)?(?: of numbers)?\s*:?\s+(?P<list>-?\d[^a-z]*)",
            _next_term,
        ),
        (rf"(?:what )?{_PC} of (?P<whole>.+?) (?:is|equals|are) (?P<part>.+)", _what_percent),
        (rf"(?P<part>.+?) is (?:what|how many) {_PC} of (?P<whole>.+)", _what_percent),
        (rf"{ASK}(?P<part>.+?) as a {_PC} of (?P<whole>.+)", _what_percent),
        (r"(?P<part>.+?) is (?P<share>[^ ]+(?: ?%| per ?cent)) of (?:what(?: number)?|which number)", _of_what),
        (
            (
                rf"{ASK}{_PC} (?P<kind>change|increase|decrease|drop|reduction|gain|loss|difference)?(?: "
                rf"in price)?\s*(?:from|between|when going from) {_A} (?:to|and) {_B}"
            ),
            _change,
        ),
        (
            rf"(?:convert|change|turn|write|express|{ASK}) ?{_A} (?:to|into|as|in|in(?:to)? the form "
            r"of) (?:a |an |its )?"
            r"(?P<to>(?:simplified |common |proper |improper )?fraction|mixed (?:number|fraction)|decimal(?: "
            r"number| form)?|percentage|per ?cent|binary|hexadecimal|hex|octal)"
            r"(?: in (?:lowest|simplest) (?:terms|form))?",
            _convert,
        ),
        (
            (
                rf"(?:convert|change|{ASK}) ?(?:the )?(?:(?P<base>binary|hexadecimal|hex|octal)(?: number)?) "
                rf"(?P<a>[0-9a-f]{{1,60}}) (?:to|in|into|as) (?:a )?(?:decimal|base 10)(?: number)?"
            ),
            _from_base,
        ),
        (
            rf"(?:round|{ASK}) ?{_A} (?:rounded |correct )?to (?:the )?(?:nearest (?P<near>{'|'.join(_NEAREST)})s?"
            r"|(?P<n>\w+) (?P<unit>decimal places?|decimals?|d\.?p\.?|places|digits after the decimal "
            r"point|significant (?:figures?|digits?)|sig(?:nificant)? figs?|s\.?f\.?))",
            _round,
        ),
        (
            (
                rf"(?:which|what)(?: one| number)?(?: of these(?: numbers)?| fraction)? is (?:the )?{_SIZE}(?: "
                r"number)?\s*(?:of|among|between)?\s*[:,]?\s*(?P<list>.+)"
            ),
            _which,
        ),
        (
            (
                rf"is {_A} (?P<how>(?:more|greater|larger|bigger|higher|less|smaller|fewer|lower) than|equal "
                rf"to|the same as|=|==|<|>) {_B}"
            ),
            _is_it,
        ),
        (rf"does {_A} (?P<how>equal|=) {_B}", _is_it),
    )
)
