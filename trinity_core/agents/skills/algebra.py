"""Equations, rewriting, calculus, and whether two answers are the same expression.

Solutions are checked by substitution before they are given. Complex ones are given only when there is no real one.
Not covered: trigonometric equations (their solutions do not end), inequalities in several letters, matrices.
"""

from __future__ import annotations

import re

import sympy
from sympy import Expr, Integer, Symbol

from trinity_core.agents.skills.formula import checked, parse
from trinity_core.agents.skills.tokens import Unreadable, ordinal
from trinity_core.agents.skills.values import (
    about,
    answer,
    computed,
    in_decimals,
    manageable,
    number,
    shown,
    simplified,
    variable,
)
from trinity_core.agents.specialists import Solution

# --- Equations ----------------------------------------------------------------------------------------------

_MAX_OPS = 60
_IF = (
    r"(?:if|when|where|whenever|given(?: that)?|such that|so that|for which|suppose(?: that)?"
    r"|assuming(?: that)?|that satisf(?:y|ies)|that makes?|that solves?|which makes?|to make|knowing(?: that)?)"
)
_WANT = (
    r"(?:what(?:['’]s| is| are| must be| does| should be)|find|calculate|compute|evaluate|determine|give(?: me)?"
    r"|solve for|work out|state|name|tell me|i(?:['’]m| am) looking for|i (?:need|want)(?: to know| to find)?)"
)
_EQUATION_FORMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:{_IF}|let)\s+(?P<eqs>.+?=.+?)\s*[,.;:]?\s+(?:then\s+)?{_WANT}\s+(?:the values? of\s+)?(?P<want>[^=]+)",
        rf"{_WANT}\s+(?:the values? of\s+)?(?P<want>[^=]+?),?\s+(?:{_IF}|for|at|in|from|with)\s+(?P<eqs>.+=.+)",
        (
            r"(?:what|which)\s+values?\s+(?:of|for)\s+(?P<want>[a-z])\s+(?:satisf(?:y|ies)|makes?|solves?"
            r"|fulfils?)\s+"
            r"(?P<eqs>.+?)(?: true| hold| correct)?"
        ),
        r"(?:the\s+)?equation\s+(?P<eqs>.+?=.+?)\s+has\s+(?:what|which)\s+solutions?(?P<want>)",
        (
            r"for\s+(?:which|what)(?:\s+values?\s+of)?\s+(?P<want>[a-z]),?\s+(?:is|does|do|will|would|are)\s+"
            r"(?P<eqs>.+?)(?:\s+(?:true|hold(?: true)?|satisfied|correct|valid))?"
        ),
        (
            r"what\s+(?:number\s+|value\s+)?(?:must|should|does|has|would|can|do)\s+(?P<want>[a-z])\s+(?:be"
            r"|equal|have to be|need to be"
            r"|to be)?,?"
            r"\s*(?:so that|for|if|when|in order that|such that|to make|in|given(?: that)?)\s+(?P<eqs>.+?)"
            r"(?:\s+(?:to be true|true|to hold))?"
        ),
        r"(?:(?:find|solve)\s+)?(?:for\s+)?(?P<want>[a-z])\s*(?:[:,]|\bin\b)\s*(?P<eqs>.+=.+)",
        rf"(?:(?:solve|(?:{_WANT} )?(?:the )?(?:solutions?|roots?|zeros) (?:of|to"
        rf"|for))\s+)?(?:the\s+)?(?:(?:linear|quadratic|cubic"
        r"|simultaneous|following)\s+)*"
        r"(?:equations?|system(?: of equations)?)?\s*:?\s*(?P<eqs>.+?=.+?)(?:,?\s+for\s+(?P<want>[a-z](?:(?:,"
        r"| and|, and)\s+[a-z])*))?",
    )
)
_ROOTS = re.compile(
    r"(?:(?:what are|find|give|calculate|determine)\s+)?(?:all\s+)?(?:the\s+)?(?:real\s+)?(?:roots?"
    r"|zeros|zeroes|solutions)\s+of\s+"
    r"(?:the\s+)?(?:(?:polynomial|quadratic|equation|function|expression)\s+)*(?:[fpy]\([a-z]\)\s*=\s*)?("
    r"?P<a>[^=]+?)(?:\s*=\s*0)?",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    r"(?:(?:if|given(?: that)?|let|suppose)\s+)?(?:the function\s+)?(?P<f>[fgh])\((?P<x>[a-z])\)\s*=\s*(?"
    r"P<body>[^=]+?)\s*[,.;]?"
    r"\s+(?:then\s+)?(?:what(?:['’]s| is)|find|calculate|compute|evaluate)\s+(?:the value of\s+)?(?P=f)\("
    r"(?P<at>[^()a-z]+)\)",
    re.IGNORECASE,
)
_INEQUALITY = re.compile(
    (
        r"(?:solve\s+)?(?:the\s+)?(?:inequality\s+)?(?P<a>[^<>≤≥=]+)(?P<op><=|>=|[<>≤≥])(?P<b>[^<>≤≥=]+?)(?:\s"
        r"+for\s+(?P<x>[a-z]))?"
    ),
    re.IGNORECASE,
)


def equations(text: str) -> Solution | None:
    """The answer to a question that contains equations, roots of a polynomial, an inequality or a number puzzle."""
    if match := _INEQUALITY.fullmatch(text):
        return _inequality(match)
    if match := _ROOTS.fullmatch(text):
        return _solved([(parse(match["a"]).expr, Integer(0))], [])
    if match := _FUNCTION.fullmatch(text):
        body = parse(match["body"])
        value = body.expr.subs(Symbol(match["x"]), number(match["at"]))
        return (
            computed(f"With {match['x']} = {match['at']}: {body.shown}", checked(value), True)
            if value.is_number
            else None
        )
    said = re.sub(
        r"(?i)\s+(?:is equal to|equals?|is the same as)\s+(?!(?:if|when|where|in|for|given)\b)", " = ", text
    )
    if "=" in said:
        for form in _EQUATION_FORMS:
            if match := form.fullmatch(said):
                try:
                    return _from_form(match["eqs"], match["want"])
                except Unreadable:
                    continue
    return _puzzle(said)


def _from_form(eqs: str, want: str | None) -> Solution | None:
    pairs = []
    eqs = re.sub(r"(?i)^(?:the )?(?:following )?(?:(?:linear|quadratic) )?equations?:? ", "", eqs)
    for part in re.split(r"\s*(?:[,;]|\band\b)\s*(?:and\s+)?", eqs):
        sides = part.split("=")
        if len(sides) != 2:
            raise Unreadable("no equation")
        pairs.append((parse(sides[0]).expr, parse(sides[1]).expr))
    names = re.split(r"\s*(?:,|\band\b)\s*(?:and\s+)?", want.strip()) if want else []
    if all(re.fullmatch(r"[A-Za-z]", name) for name in names):
        return _solved(pairs, [Symbol(name) for name in names])
    target = parse(want or "")
    found = _solutions(pairs, sorted({s for a, b in pairs for s in (a - b).free_symbols}, key=str))
    values = {checked(target.expr.subs(solution)) for solution in found}
    if len(values) != 1:
        return None
    value = simplified(values.pop())
    given = ", ".join(f"{name} = {shown(v)}" for name, v in found[0].items())
    return computed(f"With {given}: {target.shown}", value, True) if value.is_number else None


def _solved(pairs: list[tuple[Expr, Expr]], names: list[Symbol]) -> Solution | None:
    """The solutions, as "x = 2 or x = 3" for one unknown, "x = 6, y = 4" for several."""
    symbols = sorted({s for a, b in pairs for s in (a - b).free_symbols or a.free_symbols}, key=str)
    shown_pairs = ", ".join(f"{shown(a)} = {shown(b)}" for a, b in pairs)
    if not symbols:
        return None
    if len(pairs) == 1 and (len(symbols) == 1 or len(names) == 1):
        x = names[0] if names else symbols[0]
        left, right = pairs[0]
        if x not in symbols or (left == x and right.is_number):
            return None
        if simplified(left - right) == 0:
            return Solution("all real numbers", f"{shown_pairs} holds for every {x}.")
        found = _solutions(pairs, [x])
        if not found:
            return Solution("no solution", f"{shown_pairs} has no solution.")
        value = " or ".join(f"{x} = {shown(s[x], True)}" for s in found)
        return answer(value, f"{shown_pairs} gives {value}.{_sizes([s[x] for s in found])}")
    if len(pairs) < len(symbols) or len(pairs) > 4:
        return None
    found = _solutions(pairs, symbols)
    if not found or any(len(s) < len(symbols) for s in found):
        return None
    wanted = [n for n in names if n in symbols] or symbols
    value = " or ".join(", ".join(f"{n} = {shown(s[n], True)}" for n in wanted) for s in found)
    return answer(value, f"{shown_pairs} gives {value}.")


def _sizes(values: list[Expr]) -> str:
    found = [about(v).removeprefix(" ≈ ") for v in values]
    return f" That is about {' and '.join(found)}." if all(found) else ""


def _solutions(pairs: list[tuple[Expr, Expr]], symbols: list[Symbol]) -> list[dict[Symbol, Expr]]:
    """Checked solutions, smallest first. Raises Unreadable for kinds of equations that are not solved here."""
    zeros = [a - b for a, b in pairs]
    if sum(z.count_ops() for z in zeros) > _MAX_OPS or any(z.has(sympy.sin, sympy.cos, sympy.tan) for z in zeros):
        raise Unreadable("not solved here")
    if any(z.is_polynomial(*symbols) and sympy.Poly(z, *symbols).total_degree() > 8 for z in zeros):
        raise Unreadable("degree")
    real = {s: sympy.Dummy(str(s), real=True) for s in symbols} if any(z.has(sympy.Abs) for z in zeros) else {}
    back = {dummy: symbol for symbol, dummy in real.items()}
    raw = sympy.solve([z.subs(real) for z in zeros], [real.get(s, s) for s in symbols], dict=True)
    found = [{back.get(k, k): sympy.nsimplify(simplified(v)) for k, v in solution.items()} for solution in raw]
    if any(v.has(sympy.CRootOf, sympy.LambertW) for solution in found for v in solution.values()):
        raise Unreadable("no closed form")
    for solution in found:
        if any(simplified(z.subs(solution)) != 0 for z in zeros):
            raise Unreadable("not confirmed")
    reals = [s for s in found if all(v.is_real is not False for v in s.values())]
    return sorted(reals or found, key=lambda s: [_order(s[k]) for k in sorted(s, key=str)])


def _order(value: Expr) -> tuple[float, float]:
    if not value.is_number:
        return (0.0, 0.0)
    number_ = complex(sympy.N(value, 15))
    return (number_.real, number_.imag)


def _inequality(match: re.Match[str]) -> Solution | None:
    left, right = parse(match["a"]).expr, parse(match["b"]).expr
    sign = {"≤": "<=", "≥": ">="}.get(match["op"], match["op"])
    if not (left - right).free_symbols:
        return None
    x = variable(left - right, match["x"])
    if not (left - right).is_polynomial(x) or sympy.degree(left - right, x) > 4:
        return None
    real = sympy.Dummy(str(x), real=True)
    relation = {"<": sympy.Lt, ">": sympy.Gt, "<=": sympy.Le, ">=": sympy.Ge}[sign](
        left.subs(x, real), right.subs(x, real)
    )
    if relation in (sympy.true, sympy.false):
        return Solution(
            "all real numbers" if relation == sympy.true else "no solution", f"It does not depend on {x}."
        )
    region = sympy.solve_univariate_inequality(relation, real, relational=False)
    value = _region(region, str(x))
    return answer(value, f"{shown(left)} {sign} {shown(right)} gives {value}.") if value else None


def _region(region: sympy.Set, x: str) -> str | None:
    if region == sympy.S.Reals:
        return "all real numbers"
    if region == sympy.S.EmptySet:
        return "no solution"
    parts = region.args if isinstance(region, sympy.Union) else (region,)
    texts = []
    for part in parts:
        if isinstance(part, sympy.FiniteSet):
            texts += [f"{x} = {shown(v)}" for v in part]
            continue
        if not isinstance(part, sympy.Interval):
            return None
        low = "" if part.start == -sympy.oo else f"{shown(part.start)} {'<' if part.left_open else '<='} "
        high = "" if part.end == sympy.oo else f" {'<' if part.right_open else '<='} {shown(part.end)}"
        if not low or not high:
            bound, sign = (
                (part.end, "<" if part.right_open else "<=")
                if not low
                else (part.start, ">" if part.left_open else ">=")
            )
            texts.append(f"{x} {sign} {shown(bound)}")
        else:
            texts.append(f"{low}{x}{high}")
    return " or ".join(texts)


# --- Number puzzles -----------------------------------------------------------------------------------------

_ASKED = (
    r"[.,;?]?\s*\b(?:what|find|which|determine|work out)(?:['’]s| is| are| was)?\s*(?:the|this"
    r"|that|my)?\s*(?:original |starting )?numbers?$"
)
_UNKNOWN = r"\b(?:(?:a|an|some|what|which|my|the|this|that|one) (?:certain |unknown |mystery )?number)\b"
_IS = (
    r"(?:\s*,?\s*(?:the (?:result|answer|total) is|you get|i get|we get|it (?:is|becomes|equals"
    r"|gives)|the result equals)\s+|\s+(?:is|are|equals?|gives|makes|yields|=)\s+|\s*=\s*)"
)
_TWO = re.compile(
    r"(?:the )?sum of two numbers is (?P<sum>[\w .-]+?),? (?:and|while) (?:their|the) (?P<kind>difference"
    r"|product) is (?P<other>[\w .-]+?)"
    r"[.,;?]?\s*(?:what|find|which).*",
    re.IGNORECASE,
)
_RUN = re.compile(
    r"(?:the )?sum of (?P<n>two|three|four|five|\d) consecutive (?P<kind>even |odd )?(?:positive "
    r")?(?:integers|numbers|whole numbers) is (?P<sum>[\w ,-]+?)"
    r"[.,;?]\s*(?:what|find|which) (?:are|is)?\s*(?:the )?(?P<which>largest|greatest|biggest"
    r"|smallest|first|middle)?.*",
    re.IGNORECASE,
)


def _puzzle(text: str) -> Solution | None:
    """One number described in words, two by sum and difference or product, or a run of integers by its sum."""
    if match := _TWO.fullmatch(text):
        x, y = sympy.symbols("x y")
        other = x - y if match["kind"].lower() == "difference" else x * y
        found = sympy.solve([x + y - number(match["sum"]), other - number(match["other"])], [x, y], dict=True)
        values = max(sorted((v for v in s.values()), reverse=True) for s in found) if found else []
        text = " and ".join(shown(v, True) for v in values)
        return Solution(text, f"{text} have the sum {match['sum']}.") if values else None
    if match := _RUN.fullmatch(text):
        return _run(match)
    body = re.sub(_ASKED, "", text, flags=re.IGNORECASE).strip(" .,;?")
    body = re.sub(r"(?i)^(?:if|when|suppose|i think of a number and)\s+", "", body)
    body = re.sub(_UNKNOWN, " n ", body, flags=re.IGNORECASE)
    body = re.sub(
        r"(?i)\bn\s+is (?=(?:multiplied|divided|increased|decreased|doubled|tripled|squared|added|halved))",
        "n ",
        body,
    )
    sides = re.split(_IS, body, flags=re.IGNORECASE)
    if len(sides) != 2 or not re.search(r"\bn\b", body):
        return None
    left, right = parse(sides[0]), parse(sides[1])
    n = Symbol("n")
    if (left.expr - right.expr).free_symbols != {n}:
        return None
    found = _solutions([(left.expr, right.expr)], [n])
    if not found or not all(s[n].is_real for s in found):
        return None
    value = " or ".join(shown(s[n], True) for s in found)
    return answer(value, f"{' '.join(left.shown.split())} = {right.shown} gives n = {value}.")


def _run(match: re.Match[str]) -> Solution | None:
    count = int(parse(match["n"]).expr)
    step = 2 if match["kind"] else 1
    first = (number(match["sum"]) - step * count * (count - 1) / sympy.Integer(2)) / count
    if not first.is_Integer or (match["kind"] and (first % 2 == 0) != match["kind"].lower().startswith("even")):
        return None
    values = [first + step * k for k in range(count)]
    which = (match["which"] or "").lower()
    pick = {"smallest": 0, "first": 0, "middle": count // 2}.get(which, count - 1)
    value = str(values[pick]) if which else ", ".join(map(str, values))
    return Solution(value, f"{' + '.join(map(str, values))} = {match['sum'].strip()}")


# --- Rewriting and calculus ---------------------------------------------------------------------------------


def _rewrite(match: re.Match[str]) -> Solution | None:
    verb = (match["verb"] or "simplify").lower()
    formula = parse(match["a"])
    expr = formula.expr
    if expr.is_number:
        return None if formula.trivial else computed(formula.shown, expr, in_decimals(formula))
    manageable(expr)
    if verb.startswith("factor"):
        found = sympy.factor(expr)
    elif verb.startswith(("expan", "multiply out")):
        found = sympy.expand(expr)
    else:
        found = simplified(expr)
    return computed(formula.shown, checked(found))


def _derivative(match: re.Match[str]) -> Solution | None:
    formula = parse(re.sub(r"(?i)^(?:[fy](?:\([a-z]\))?\s*=\s*)", "", match["a"]))
    x = variable(formula.expr, match["x"] or match.groupdict().get("dx"))
    order = ordinal(match["order"]) if match["order"] else 1
    if not 1 <= order <= 6 or formula.expr.count_ops() > 60:
        return None
    found = simplified(sympy.diff(formula.expr, x, order))
    if match["at"]:
        found = checked(found.subs(x, number(match["at"])))
        return computed(f"The derivative of {formula.shown} at {x} = {match['at']}", found)
    return computed(f"d/d{x}({formula.shown})" if order == 1 else f"Derivative {order} of {formula.shown}", found)


def _integral(match: re.Match[str]) -> Solution | None:
    body = re.sub(r"(?i)\s*\bd([a-z])$", "", match["a"])
    named = match["x"] or (m[1] if (m := re.search(r"(?i)\bd([a-z])$", match["a"])) else None)
    formula = parse(body)
    if formula.expr.count_ops() > 40:
        return None
    x = variable(formula.expr, named or (None if formula.expr.free_symbols else "x"))
    if match["low"]:
        low, high = (_limit_point(match[k]) for k in ("low", "high"))
        found = sympy.integrate(formula.expr, (x, low, high))
        head = f"∫ {formula.shown} d{x} from {match['low']} to {match['high']}"
    else:
        found = sympy.integrate(formula.expr, x)
        head = f"∫ {formula.shown} d{x}"
    if found.has(sympy.Integral, sympy.Piecewise):
        return None
    value = shown(checked(found)) + ("" if match["low"] else " + C")
    return answer(value, f"{head} = {value}{about(found)}")


def _limit_point(text: str) -> Expr:
    found = re.fullmatch(r"(?i)(-|minus |negative )?(?:infinity|inf|∞|oo)", text.strip())
    return (-sympy.oo if found[1] else sympy.oo) if found else number(text)


def _limit(match: re.Match[str]) -> Solution | None:
    formula = parse(match["a"])
    if formula.expr.count_ops() > 30:
        return None
    found = sympy.limit(formula.expr, Symbol(match["x"]), _limit_point(match["to"]))
    value = "infinity" if found == sympy.oo else "-infinity" if found == -sympy.oo else shown(checked(found))
    return answer(value, f"As {match['x']} approaches {match['to']}, {formula.shown} approaches {value}.")


# --- Comparing answers --------------------------------------------------------------------------------------


def same_answers(a: str, b: str) -> bool:
    """Whether two answers are equal as expressions or as sets of solutions. Raises what parsing raises."""
    ours, theirs = _parts(a), _parts(b)
    return len(ours) == len(theirs) and all(any(_equal(x, y) for y in theirs) for x in ours)


def _parts(text: str) -> list[Expr]:
    text = re.sub(r"(?i)\s*\+\s*c$", "", text.strip().rstrip("."))
    found = []
    for part in re.split(r"\s*(?:[,;](?!\d{3}\b)|\bor\b|\band\b)\s*", text):
        body = re.sub(r"^\s*(?:[A-Za-z](?:\([a-z]\))?|d[a-z]/d[a-z])\s*=\s*", "", part)
        found.append(parse(body).expr)
    return found


def _equal(a: Expr, b: Expr) -> bool:
    if (a - b).count_ops() > 150:
        return False
    return simplified(a - b) == 0


ASK = (
    r"(?:(?:what(?:['’]?s| is| are)?|calculate|compute|evaluate|find|work out|determine|give(?: "
    r"me)?|show(?: me)?)\s+)?"
    r"(?:the\s+)?(?:value of\s+)?(?:the\s+)?"
)
"""How a question may begin before its operand."""

RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), handler)
    for pattern, handler in (
        (
            r"(?P<verb>simplify|reduce|factori[sz]e|factor|expand|multiply out)(?: out| fully| completely)?\s*:?\s+"
            r"(?:the (?:expression|polynomial|fraction|product)\s+)?(?P<a>.+?)(?: to (?:its )?(?:lowest"
            r"|simplest) (?:terms|form))?",
            _rewrite,
        ),
        (
            (
                rf"{ASK}(?:simplified form of|(?P<verb>factori[sz]ation|factored form|expansion|expanded "
                r"form) of)\s+(?P<a>.+)"
            ),
            _rewrite,
        ),
        (
            rf"(?:{ASK}(?:the\s+)?(?:(?P<order>first|second|third|fourth)\s+)?derivative\s+of|differentiate"
            r"|d/d(?P<dx>[a-z])(?:\s+of)?)"
            r"\s*:?\s*(?P<a>.+?)(?:\s+(?:with respect to|wrt|w\.r\.t\.?)\s+(?P<x>[a-z]))?(?:\s+(?:at"
            r"|when)\s+[a-z]\s*=\s*(?P<at>.+))?",
            _derivative,
        ),
        (
            rf"(?:integrate|{ASK}(?:the\s+)?(?:definite |indefinite )?(?:integral|antiderivative)(?:\s+of)?)\s*:?\s"
            r"*(?P<a>.+?)"
            r"(?:\s+(?:with respect to|wrt)\s+(?P<x>[a-z]))?"
            r"(?:,?\s+(?:from|between)\s+(?:[a-z]\s*=\s*)?(?P<low>\S+|minus infinity)\s+(?:to|and)\s+(?:[a-z]\s*="
            r"\s*)?(?P<high>\S+))?",
            _integral,
        ),
        (
            (
                rf"{ASK}(?:the\s+)?limit\s+of\s+(?P<a>.+?),?\s+as\s+(?P<x>[a-z])\s*(?:approaches|goes to"
                r"|tends to|->|→)\s*(?P<to>.+)"
            ),
            _limit,
        ),
    )
)
