"""Calculations told as actions or by their result: "If I add 4 to 9, what do I get?", "the largest number that
divides both 18 and 24", "which number squared gives 49", "on average, how much are 3, 5 and 10?".

`RULES` pairs a wording (a regular expression for the whole cleaned question) with the function that answers it, as in
`arithmetic`. A rule returns None, or raises what SymPy or `formula` raise, when the words or the operands do not fit:
the result that is asked for must be the action's ("what is the product" after adding is declined).

Not covered: several actions in a row (each is a step of its own), actions with things instead of numbers.
"""

from __future__ import annotations

import re

import sympy
from sympy import Integer

from trinity_core.agents.skills.formula import parse
from trinity_core.agents.skills.tokens import normal
from trinity_core.agents.skills.values import computed, in_decimals, integer, number
from trinity_core.agents.specialists import Solution

_A, _B, _LIST = r"(?P<a>.+?)", r"(?P<b>.+?)", r"(?P<list>.+?)"
_BE = r"(?:is|are|gets?|was|were)"
_NUM = r"(?:the )?(?:numbers? |values? |fractions? )?"
_WHO = r"(?:(?:i|you|we|one|someone|somebody) )?"

# What is done, as an instruction, in the -ing form, and as something that happens to a number.
_ACTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (form, re.compile(pattern, re.IGNORECASE))
    for form, pattern in (
        (
            "the sum of {list}",
            r"(?:add(?:ing)?|sum(?:ming)?)(?: up| together)? (?:the numbers )?(?P<list>.+?,.+? and .+?|.+?,.+?)",
        ),
        ("{b} + {a}", rf"add(?:ing)?(?: up)? {_NUM}{_A} (?:to|and|with|plus) {_NUM}{_B}(?: together)?"),
        ("{b} + {a}", rf"{_NUM}{_A} {_BE} added to {_NUM}{_B}"),
        ("the sum of {list}", rf"(?:the numbers )?{_LIST} {_BE} (?:added|summed)(?: up| together)?"),
        (
            "{b} - {a}",
            rf"(?:subtract(?:ing)?|tak(?:e|ing)|deduct(?:ing)?|remov(?:e|ing))(?: away)? {_NUM}{_A}(?: away)?"
            rf" from {_NUM}{_B}",
        ),
        ("{b} - {a}", rf"{_NUM}{_A} {_BE} (?:subtracted|taken(?: away)?|deducted|removed) from {_NUM}{_B}"),
        ("{a} * {b}", rf"multiply(?:ing)? {_NUM}{_A} (?:by|and|with|times) {_NUM}{_B}(?: together)?"),
        ("{a} * {b}", rf"{_NUM}{_A} {_BE} multiplied (?:by|with) {_NUM}{_B}"),
        ("the product of {list}", rf"(?:the numbers )?{_LIST} {_BE} multiplied(?: together)?"),
        ("{a} / {b}", rf"divid(?:e|ing) {_NUM}{_A} (?:by|into|among|between) {_NUM}{_B}(?: equal parts)?"),
        ("{a} / {b}", rf"{_NUM}{_A} {_BE} (?:evenly |equally )?divided (?:by|into groups of) {_NUM}{_B}"),
        ("{a} ^ {b}", rf"rais(?:e|ing) {_NUM}{_A} to the power(?: of)? {_B}"),
        ("{a} ^ {b}", rf"{_NUM}{_A} {_BE} raised to the power(?: of)? {_B}"),
        ("{a} ^ 2", rf"squar(?:e|ing) {_NUM}{_A}|{_NUM}{_A.replace('<a>', '<b>')} {_BE} squared"),
        ("{a} * 2", rf"doubl(?:e|ing) {_NUM}{_A}|{_NUM}{_A.replace('<a>', '<b>')} {_BE} doubled"),
        ("{a} * 3", rf"tripl(?:e|ing) {_NUM}{_A}|{_NUM}{_A.replace('<a>', '<b>')} {_BE} tripled"),
        ("{a} / 2", rf"halv(?:e|ing) {_NUM}{_A}|{_NUM}{_A.replace('<a>', '<b>')} {_BE} halved"),
        ("{a} increased by {b}", rf"(?:increas(?:e|ing)|rais(?:e|ing)) {_NUM}{_A} by {_B}"),
        ("{a} increased by {b}", rf"{_NUM}{_A} {_BE} increased by {_B}"),
        ("{a} decreased by {b}", rf"(?:decreas|reduc)(?:e|ing) {_NUM}{_A} by {_B}"),
        ("{a} decreased by {b}", rf"{_NUM}{_A} {_BE} (?:decreased|reduced) by {_B}"),
    )
)
_NAMES = {"sum": "+", "product": "*", "difference": "-", "quotient": "/"}
_OVER = re.compile(r"\b(?:remainder|left over|leftover|remains?|rest)\b", re.IGNORECASE)
_RESULT = (
    r"(?P<ask>(?:what|which|how much|how many)(?:['’]s)?(?: (?:is|are|will|would|do|does|did|remains?|remain"
    r"|remainder"
    r"|results?|fraction|comes out|be|the|get|i|you|we|one|it|that|have|there|obtain|left|over|leftover|end up with"
    r"|answer|total"
    r"|sum|product|difference|quotient|outcome|value|number|final|rest|leave|see|arrive at|give|make|amount|equal))*)"
)


def _told(match: re.Match[str]) -> Solution | None:
    """The result of an action."""
    act, ask = match["act"].strip(" ,;:."), match["ask"].lower()
    for form, pattern in _ACTS:
        if not (found := pattern.fullmatch(act)):
            continue
        named = next((sign for name, sign in _NAMES.items() if re.search(rf"\b{name}\b", ask)), None)
        spoken = "+" if "sum" in form else "*" if "product" in form else form[4:5]
        if named and named != spoken:
            return None
        given = {name: part for name, part in found.groupdict().items() if part}
        if "{b}" not in form and "b" in given:
            given["a"] = given.pop("b")
        if _OVER.search(ask) and spoken != "-":
            return _rest(given["a"], given["b"]) if form == "{a} / {b}" else None
        if "into groups" in act or (named == "/" and integer(given["a"]) % integer(given["b"])):
            return None
        return _value(form, given)
    return None


def _value(form: str, given: dict[str, str]) -> Solution | None:
    """The formula `form` with its operands."""
    filled = {name: normal(part) if name == "list" else f"({normal(part)})" for name, part in given.items()}
    formula = parse(form.format(**filled))
    if not formula.expr.is_number or formula.trivial:
        return None
    return computed(re.sub(r"\(([\w.]+%?)\)", r"\1", formula.shown), formula.expr, in_decimals(formula))


def _rest(a: str, b: str) -> Solution | None:
    n, d = integer(a), integer(b)
    return Solution(str(n % d), f"{n} = {d} × {n // d} + {n % d}") if d > 0 else None


def _remainder(match: re.Match[str]) -> Solution | None:
    return _rest(match["a"], match["b"])


def _integers(text: str) -> list[int]:
    parts = re.split(r"\s*,\s*(?:and\s+|or\s+)?|\s+and\s+|\s+as well as\s+", text.strip())
    return [integer(part) for part in parts if part]


def _common(match: re.Match[str]) -> Solution | None:
    """The greatest common divisor or the least common multiple, described."""
    values = _integers(match["list"])
    if len(values) < 2 or min(values) < 1:
        return None
    largest = match["size"].lower() in ("largest", "greatest", "biggest", "highest")
    value = sympy.igcd(*values) if largest else sympy.ilcm(*values)
    name = "greatest common divisor" if largest else "least common multiple"
    return Solution(str(value), f"The {name} of {', '.join(map(str, values))} is {value}.")


def _unpowered(match: re.Match[str]) -> Solution | None:
    """The number whose square (cube) is given; of a square's two roots the positive one."""
    value = number(match["a"])
    cube = "cube" in match["how"].lower()
    if value < 0 and not cube:
        return None
    root = sympy.real_root(value, 3) if cube else sympy.sqrt(value)
    if not root.is_Rational:
        return None
    return computed(f"the {'cube' if cube else 'square'} root of {value}", root)


def _average(match: re.Match[str]) -> Solution | None:
    parts = [number(part) for part in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", match["list"].strip(" ,:")) if part]
    if len(parts) < 2:
        return None
    total = sum(parts, Integer(0))
    return computed(f"({' + '.join(map(str, parts))}) / {len(parts)}", total / len(parts), True)


def _named(match: re.Match[str]) -> Solution | None:
    """ "The sum: 12 + 30": a formula, or a list, after the name of its result."""
    body, name = match["a"], match["name"].lower()
    signs = {"sum": "+", "total": "+", "product": "*x×·", "difference": "-−", "quotient": "/÷"}
    if re.fullmatch(rf"[\d\s.,()]+(?:[{re.escape(signs[name])}][\d\s.,()]+)+", body):
        return _value("{a}", {"a": body})
    return _value(f"the {name} of {{list}}", {"list": body}) if re.search(r",| and ", body) else None


def _gap(match: re.Match[str]) -> Solution | None:
    """ "By how much is 50 larger than 38?"."""
    larger = match["size"].lower() in ("more", "bigger", "larger", "greater", "higher")
    return _value("{a} - {b}" if larger else "{b} - {a}", {"a": match["a"], "b": match["b"]})


def _missing(match: re.Match[str]) -> Solution | None:
    """ "What must be added to 38 to get 50?"."""
    form = {"a": "{b} - {a}", "s": "{a} - {b}", "t": "{a} - {b}", "m": "{b} / {a}"}[match["verb"][0].lower()]
    return _value(form, {"a": match["a"], "b": match["b"]})


def _told_as_formula(match: re.Match[str]) -> Solution | None:
    """A story that ends by saying its formula."""
    used = re.findall(r"\d+(?:\.\d+)?", match["a"])
    if not set(re.findall(r"\d+(?:\.\d+)?", match["told"])) <= set(used):
        return None
    return _value("{a}", {"a": match["a"]})


_SIZE_UP = r"(?P<size>largest|greatest|biggest|highest)"
_SIZE_DOWN = r"(?P<size>smallest|least|lowest)"
_ASK = (
    r"(?:(?:what|which)(?:['’]s| is| are)?|which number is|what number is|find|give(?: me)?|name|determine|calculate"
    r"|state)(?: the)?"
)
_WHOLE = r"(?:(?:whole|positive|natural|common|possible) )*(?:number|integer|divisor|factor|multiple|one)"
_ALL = r"(?:both |all of |each of |all )?(?:the numbers )?"
_EVENLY = r"(?: (?:evenly|exactly|without (?:a |any )?remainder|with no remainder))?"
_NUMBER = (
    r"(?:which|what)(?: (?:positive|whole|natural|non-negative))* (?:number|integer)(?:,? (?:if|when|is|must be"
    r"|has to be"
    r"|do you have to|should be|gets|being))?"
)
_GIVES = r",? (?:to )?(?:gives?|gets?|equals?|is|makes?|results in|result in|yields?|equal to|has the value|have) "

RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), handler)
    for pattern, handler in (
        (rf"(?:if|when|suppose|say|after|by|on) {_WHO}(?P<act>.+?)[,;:.?]? (?:then )?{_RESULT}", _told),
        (rf"{_RESULT} (?:if|when|by|of|from|after) {_WHO}(?P<act>.+)", _told),
        (rf"{_WHO}(?P<act>[a-z]+ .*?\d)[.;,:?!]? (?:and )?(?:then )?(?:now )?{_RESULT}", _told),
        (rf"(?:the )?(?P<ask>result|answer|outcome|total|sum) (?:of|when|if|after) {_WHO}(?P<act>.+)", _told),
        (
            rf"divide {_A} by {_B}[.,;:]? (?:and )?(?:what(?:['’]s| is)|give|find|state|tell me|name|report"
            rf"|write down)"
            r"(?: me)? the remainder",
            _remainder,
        ),
        (
            rf"(?:{_ASK} )?(?:the )?remainder (?:of|for|from|in|on|after|left by) (?:the )?(?:division )?(?:of )?{_A}"
            rf"(?: divided by| by|/| ÷| over| mod(?:ulo)?) ?{_B}",
            _remainder,
        ),
        (
            rf"what remainder (?:does|do|will) {_A} (?:leave|give|have) (?:when|if|on|after|upon) (?:it is |being )?"
            rf"(?:divided|division) by {_B}",
            _remainder,
        ),
        (
            rf"what remainder do {_WHO}(?:get|have|see) (?:when|if) (?:you )?(?:divide|dividing) {_A} by {_B}",
            _remainder,
        ),
        (
            rf"{_ASK}?(?: number is)?(?: the)? ?{_SIZE_UP}(?: {_WHOLE})?(?: that| which| to)? (?:divides?|goes"
            rf" into|go into"
            rf"|can divide|is a (?:factor|divisor) of|fits into) {_ALL}{_LIST}{_EVENLY}",
            _common,
        ),
        (
            rf"{_ASK}?(?: the)? ?{_SIZE_UP} {_WHOLE} by which {_ALL}{_LIST} (?:are|can be)(?: both)?(?: evenly)?"
            rf" (?:divisible|divided){_EVENLY}",
            _common,
        ),
        (
            rf"{_ASK}?(?: number is)?(?: the)? ?{_SIZE_DOWN} {_WHOLE}(?: that| which)?(?: is| can be| you"
            rf" can)?(?: evenly)?"
            rf" (?:a multiple of|(?:evenly )?divisible by|divided? by) {_ALL}{_LIST}{_EVENLY}",
            _common,
        ),
        (
            rf"{_ASK}?(?: the)? ?{_SIZE_DOWN} {_WHOLE}(?: that| which)? {_ALL}{_LIST}(?: both| all)? (?:divide"
            rf"|go into|are"
            rf" factors of"
            rf"|are divisors of)(?: into)?{_EVENLY}",
            _common,
        ),
        (rf"{_NUMBER} (?P<how>squared|cubed|multiplied by itself|times itself){_GIVES}{_A}", _unpowered),
        (
            rf"{_NUMBER} (?:gives|makes|equals|is|becomes|results in) {_A} (?:when|if|after being|once) (?:it is )?"
            r"(?P<how>squared|cubed|multiplied by itself)",
            _unpowered,
        ),
        (rf"{_NUMBER} (?P<how>square|cube){_GIVES}{_A}", _unpowered),
        (rf"{_NUMBER} has (?:a|the|its) (?P<how>square|cube)(?: of| equal to)? {_A}", _unpowered),
        (
            r"the (?P<how>square|cube) of (?:which|what)(?: (?:positive|whole|natural))* (?:number|integer)"
            rf" (?:is|equals) {_A}",
            _unpowered,
        ),
        (rf"on average,? (?:how much|what|how many) (?:is|are) {_LIST}", _average),
        (
            rf"(?:what|how much) (?:do|does|would|will|is|are) (?:the numbers )?{_LIST} (?:average(?: out)?(?: to)?"
            r"|(?:make |amount to |come to |be )?on average)",
            _average,
        ),
        (
            rf"(?:(?:the|these|my|our|three|four|two|five) )*(?:numbers|values|scores|grades|ages|marks)(?:"
            rf" (?:are|were))?:?"
            rf" {_LIST}(?: have (?:what|which) (?:average|mean)|[.;,]? (?:what|find|calculate|give)(?:['’]s|"
            rf" is)? (?:their|the)"
            r" (?:average|mean))",
            _average,
        ),
        (
            r"(?:what(?:['’]s| is)|find|calculate|give) the (?:average|mean) (?:if|when|for|where) (?:the"
            r" )?(?:numbers|values"
            rf"|scores|grades|ages|marks)(?: (?:are|were))?:? {_LIST}",
            _average,
        ),
        (
            rf"(?:what|how much) (?:do|does|would|will) (?:the numbers )?{_LIST} (?:add up to|sum(?: up)? to"
            rf"|total|come to"
            r"|make(?: together| in all)?)",
            lambda m: _value("the sum of {list}", {"list": m["list"]}),
        ),
        (rf"average(?: out)?:? (?:(?:these|the|the following) (?:numbers|values)[:,]? )?{_LIST}", _average),
        (r"(?:[a-z' ]{2,30} )?the (?P<name>sum|total|product|difference|quotient) ?: ?(?P<a>.+)", _named),
        (
            rf"by how much (?:is|does) {_A} (?P<size>more|bigger|larger|greater|higher|less|smaller|lower) than {_B}",
            _gap,
        ),
        (rf"by how much does {_A} (?P<size>)exceed {_B}", lambda m: _value("{a} - {b}", m.groupdict())),
        (
            rf"(?:what|which number|how much)(?: number)? (?:must|should|do you have to|has to|needs to|do i have to)"
            rf"(?: be)? (?P<verb>add(?:ed)?) to {_A} to (?:get|make|give|obtain|reach) {_B}",
            _missing,
        ),
        (
            rf"(?:what|which number|how much)(?: number)? (?:must|should|do you have to|has to|needs to|do i have to)"
            rf"(?: be)? (?P<verb>subtract(?:ed)?|take(?:n)?(?: away)?) from {_A} to (?:get|make|give|obtain"
            rf"|reach) {_B}",
            _missing,
        ),
        (
            r"(?P<told>.+[?.!]) (?:so )?(?:that['’]s|that is|this is|i\.e\.|in other words|meaning|namely|it['’]s),? "
            r"(?P<a>[\d\s.,+*/×÷x()-]*\d\s*[+*/×÷x-][\d\s.,+*/×÷x()-]*)",
            _told_as_formula,
        ),
    )
)
