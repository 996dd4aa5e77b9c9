"""Wordings of the `lexical` skill that make a text of words: removing, replacing, joining, turning, ciphers, numbers.

`MADE` pairs an operation of `wordcraft` with patterns for the whole question; the slots are those of `lexical`.
"""

from __future__ import annotations

import re

from trinity_core.agents.skills import ciphers
from trinity_core.agents.skills import wordcraft as craft
from trinity_core.agents.skills.wording import QUOTED
from trinity_core.agents.skills.wordplay import Run

_WRITE = (
    r"(?:convert|change|turn|translate|transform|put|make|write|encode|encrypt|encipher|cipher|render|print|type|"
    r"express|say|spell|give(?: me)?|show(?: me)?|represent|transcribe|rewrite|format)(?: out)?"
)
_INTO = (
    r"(?: (?:all|be|look|written|spelled|spelt|converted|translated|encoded|said|represented|when|like|form))*"
    r"(?: to| into| in| as| using| with| by)?(?: the| a| an| all)?"
)
_LIKE = (
    r"(?: code| cipher| form| version| encoding| representation"
    r"| translation| equivalent| value| spelling| letters?| order)*"
)
_ASK = (
    r"(?:what(?: is|'s| would| does| are)|how (?:do you|would you|do i"
    r"|can i) (?:say|write|spell|express)|how(?: is|'s| would))"
)


def _forms(name: str, verbs: str = "") -> tuple[str, ...]:
    """The ways to ask for {w} in a form called `name`; `verbs` are imperatives that say it alone."""
    return (
        *((rf"(?:{verbs}) {{w}}",) if verbs else ()),
        rf"(?:{_WRITE}|{_ASK}) {{w}}{_INTO} (?:{name}){_LIKE}",
        rf"(?:{_ASK} |{{get}} )?(?:the |a )?(?:{name}){_LIKE} (?:of|for) {{w}}",
        rf"(?:apply|use)(?: the| a)? (?:{name}){_LIKE} (?:to|on|to encode|to encrypt) {{w}}",
        rf"{{w}} (?:in|to|into|as) (?:{name}){_LIKE}",
        rf"{_WRITE} (?:in|to|into|as|using|with) (?:{name}){_LIKE} {{w}}",
    )


_WHAT = (
    r"(?P<what>vowels?|consonants?|(?:white)?spaces|digits|numbers|punctuation(?: marks)?|(?:duplicate|repeated)"
    r" letters|"
    r"first and last (?:letters|characters)|(?:first|last)(?: \w+)? (?:letter|character)s?)"
)
_GONE = r"(?:removed|deleted|dropped|taken (?:out|away)|left out|omitted|erased|stripped|cut out)"
_REMOVE = (
    r"(?:remov|delet|drop|strip|tak|eras|eliminat|omit|leav|cut)(?:e|ing|ping|ting)?(?: (?:out|away|off))?"
    r"(?: all| every| each| any)?(?: of)?(?: the| its)?"
)
_EVERY = r"(?: all| every| each| any| the| of)*(?: (?:occurrences?|instances?) of)?"
_SWAP = r"(?:replac(?:e|ing)|substitut(?:e|ing)|chang(?:e|ing)|turn(?:ing)?|convert(?:ing)?|swap(?:ping)?)" + _EVERY

MADE: tuple[tuple[Run, tuple[str, ...]], ...] = (
    (
        craft.remove,
        (
            rf"{_REMOVE} {_WHAT} (?:out of|from|in|of) {{w}}",
            rf"(?:if|when|once|after) (?:all |the |every |each |any )*{_WHAT} (?:is|are|gets?) {_GONE} (?:from"
            rf"|in|of|out of)"
            r" {w},? (?:what|which word) (?:remains|is left(?: over)?|do (?:you|we) (?:get|have)(?: left)?|stays)",
            rf"what (?:remains|is left(?: over)?)(?: of {{w}})? (?:if|when|once|after) (?:all |the |its |every "
            rf"|each )*{_WHAT}"
            rf" (?:is|are) {_GONE}(?: (?:from|in|of) {{w}})?",
            rf"(?:(?:what is|what's|write|spell|say|give(?: me)?|print) )?{{w}},? with (?:all |the |its |every "
            rf"|each |any |of )*"
            rf"(?:{_WHAT}|{{a}}) {_GONE}",
            rf"{_REMOVE} (?:occurrences of |instances of )?{{a}} (?:from|in|out of) {{w}}",
            rf"(?:(?:what is|what's|write|spell|say|give(?: me)?|print|show(?: me)?|return) )?{{w}},? (?:leaving"
            rf" out|omitting"
            rf"|skipping|dropping|removing|taking out|but without) (?:any |all |the |its |every |each )*"
            rf"(?:{_WHAT}|{{a}})",
            rf"(?:what(?:'s| is)|what) (?:left|remains|left over)(?: of| from)? {{w}},? (?:when|if|after|once)"
            rf" (?:you |we |i )?"
            rf"{_REMOVE} (?:{_WHAT}|{{a}})",
            rf"(?:(?:what is|what's|write|spell|say|give(?: me)?|print|show(?: me)?|return) )?{{w}} without"
            rf" (?:any |all |the |its |all the )?"
            rf"(?:{_WHAT}|{{a}})",
        ),
    ),
    (
        craft.replace_end,
        (
            r"(?:replace|change|swap)(?: the)? (?P<o>first|last) (?:letter|character) (?:of|in) {w} (?:with|by|for"
            r"|to|into) {b}",
        ),
    ),
    (
        craft.replace,
        (
            rf"(?:put|write|use) (?:an? )?{{b}} (?:in place of|instead of|in the place of|for){_EVERY}"
            rf" (?:(?P<what>vowels?"
            r"|consonants?|spaces?)|{a}) (?:in|of) {w}",
            rf"(?:rewrite|write|spell) {{w}} (?:using|with) (?:an? )?{{b}} (?:instead of|in place of|for){_EVERY}"
            r" (?:(?P<what>vowels?|consonants?|spaces?)|{a})",
            r"substitute {b} for (?:every |each |all |any |the )*(?:(?P<what>vowels?|consonants?|spaces?)"
            r"|{a}) in {w}",
            rf"(?:in {{w}},? )?{_SWAP} (?:(?P<what>vowels?|consonants?|spaces?)|{{a}})(?: (?:in|of) {{w}})?"
            r" (?:with|by|to|into) (?:an? )?{b}(?: in {w})?",
            rf"(?:in {{w}},? )?(?:swap|exchange|trade|change){_EVERY} (?:(?P<what>vowels?|consonants?|spaces?)|{{a}})"
            r"(?: (?:in|of) {w})? for (?:an? )?{b}(?: in {w})?",
            rf"(?:(?:what is|what's|write|spell|give(?: me)?|print) )?{{w}},? (?:with|if|when|but with){_EVERY}"
            r" (?:(?P<what>vowels?|consonants?|spaces?)|{a})(?: is| are| being)? (?:replaced|changed|swapped|turned"
            r"|substituted|exchanged)(?: with| by| to| into| for) (?:an? )?{b}",
            rf"(?:what|how) (?:does|is|would|will) {{w}} (?:become|look(?: like)?|turn into|be(?:come)?"
            rf"|spelled)?,? ?(?:if"
            rf"|when|once|after|with)(?: you| we| i)?(?: replace| replacing| change| changing)?{_EVERY}"
            rf" (?:(?P<what>vowels?"
            r"|consonants?|spaces?)|{a})(?: is| are| being)?(?: replaced| changed| swapped| turned| substituted)?"
            r"(?: with| by| to| into| for) (?:an? )?{b}",
            r"(?:replac(?:e|ing)|substitut(?:e|ing)|chang(?:e|ing)|swap|turn)(?: all| every| each| any| the| of)*"
            r"(?: (?:occurrences?|instances?) of)? "
            r"(?:(?P<what>vowels?|consonants?|spaces?)|{a})(?: in {w})? (?:with|by|for|to|into) {b}(?: in {w})?",
        ),
    ),
    (
        craft.repeat,
        (
            r"(?:repeat|write|say|type|print|output) {w} (?:(?:exactly )?{n} times|(?P<n>twice|thrice))(?:,? "
            r"(?:separated by|with|without|joined by)"
            r"(?: an?| no| any)?(?: single)? (?P<sep>spaces?|commas?|hyphens?|dash(?:es)?))?(?: (?:in a row|in"
            r" between|between them))?",
            r"what is {w} repeated {n} times",
        ),
    ),
    (
        craft.concatenate,
        (
            r"(?P<verb>concatenate|concatenating|join|combine|merge|glue together|put together)(?: together)? {w}"
            r"(?: (?:and|with|to|\+) {v})?"
            r"(?:,? (?:into|to (?:make|form)|as|without|together|separated by|with|using)(?: an?| one| no| any|"
            r" single)*"
            r" ?(?:word|string|(?:spaces?)(?= in between|$)|(?P<sep>space|hyphen|dash|underscore|comma)|))?(?: in"
            r" between| between them)?",
            r"what (?:do|would) you get (?:if|when) you (?:concatenate|join|combine) {w} (?:and|with) {v}",
            r"(?:add|append|attach|put) {v} (?:to|at|onto)(?: the)? (?P<end>end|back) of {w}",
            r"append {v} to {w}",
            r"(?:add|prepend|attach|put) {w} (?:to|at|onto)(?: the)? (?:beginning|start|front) of {v}",
        ),
    ),
    (
        craft.turn(craft.reverse_words, "the words from the last to the first"),
        (
            r"(?:reverse|invert|flip)(?: the)?(?: order of)?(?: the| all the)? words? (?:of|in|from) {w}",
            r"(?:reverse|invert|flip)(?: the)? (?:word order|order of (?:the )?words) (?:of|in) {w}",
            r"(?:write|say|put|give|print)(?: the)? words (?:of|in) {w} (?:in reverse(?: order)?|backwards?)",
            r"reverse {w},? (?:word by word|by words)",
        ),
    ),
    (
        craft.turn(craft.reverse, "its characters from the last to the first"),
        (
            r"(?:reverse|invert|flip)(?: the)?(?: order of)?(?: the| all the)? (?:letters|characters|string"
            r"|spelling|digits)(?: order)?(?: (?:of|in))? {w}",
            r"(?:write|say|put|give|print)(?: the)? (?:letters|characters|digits) (?:of|in) {w} (?:in reverse(?:"
            r" order)?|backwards?)",
            r"{w} (?:spelled|spelt|written|reversed) ?(?:backwards?|in reverse)?",
            r"(?:what is|what's) {w} (?:spelled|spelt|written) (?:backwards?|in reverse)",
            *_forms(
                "backwards?|reverse(?:d)?|reversed order|back to front|right to left|end to start",
                "reverse|invert|flip",
            ),
            r"(?:turn|flip|spin) {w} (?:around|round|about)",
            r"(?:read|spell|write) {w} from (?:right to left|back to front|(?:the )?end to (?:the )?(?:start"
            r"|beginning))",
            rf"(?P<w>{QUOTED}|\w+) backwards?",
        ),
    ),
    (
        craft.turn(str.upper, "in capital letters"),
        _forms("upper ?case|capitals|all caps|caps|capital letters|block capitals", "upper ?case"),
    ),
    (craft.turn(str.lower, "in small letters"), _forms("lower ?case|small letters", "lower ?case")),
    (
        craft.turn(craft.title, "every word with a capital"),
        (
            *_forms("title ?case"),
            r"capitali[sz]e (?:the first letter of )?(?:each|every|all)(?: the)? words? (?:of|in) {w}",
        ),
    ),
    (
        craft.turn(lambda t: t[:1].upper() + t[1:], "with a capital"),
        (r"capitali[sz]e(?: the first letter (?:of|in))? {w}",),
    ),
    (
        craft.turn(str.swapcase, "capital and small letters exchanged"),
        (r"(?:swap|toggle|invert|flip) the case (?:of|in) {w}",),
    ),
    *(
        (craft.turn(craft.joined_case(style), f"in {style} case"), _forms(rf"{style}[ _-]?case"))
        for style in ("snake", "kebab", "camel", "pascal")
    ),
    (
        craft.turn(ciphers.pig_latin, "in pig latin (leading consonants moved to the end, then ay)"),
        _forms("pig ?-?latin"),
    ),
    (craft.turn(lambda t: ciphers.caesar(t, 13), "every letter moved 13 places"), _forms("rot[ -]?13", "rot[ -]?13")),
    (craft.turn(ciphers.atbash, "A for Z, B for Y and so on"), _forms("atbash", "atbash")),
    (craft.decode, (r"(?P<frame>(?:decode|decrypt|decipher|translate|convert|read|what|crack|interpret)\b.+)",)),
    (craft.turn(ciphers.to_morse, "in Morse code, words apart by /"), _forms("(?:international )?morse")),
    (
        craft.turn(
            lambda t: None if re.fullmatch(r"[\d., -]+", t) else ciphers.to_binary(t),
            "its ASCII codes, eight bits each",
        ),
        _forms("(?:ascii |8-bit )?binary(?: ascii)?|ascii binary"),
    ),
    (
        craft.turn(craft.alphabet_numbers, "places in the alphabet, A = 1"),
        _forms("alphabet(?:ical)? (?:positions?|numbers?)|letter numbers|numbers,? (?:with|where|using) a ?= ?1"),
    ),
    (
        craft.caesar,
        (
            r"(?P<verb>encrypt|encode|encipher|shift|rotate|cipher|move|caesar[ -]?(?:shift|encrypt|encode|cipher)"
            r"|decrypt|decode|decipher|undo|"
            r"caesar[ -]?decode|translate)(?: (?:each|every|all)(?: the)? letters? (?:of|in))? {w},? {shift}",
            r"(?P<verb>)(?:apply|use|run)(?: the| a)? {shift}(?:on|to|for|over) {w}",
            r"(?:apply|use)(?: the| a)? {shift}(?:to )?(?P<verb>encrypt|encode|decrypt|decode|)\b ?{w}",
            r"(?P<verb>encrypt|encode|shift|decrypt|decode|decipher) {shift}{w}",
            r"(?:with|using|by|under) {shift}(?P<verb>encrypt|encode|encipher|shift|write|decrypt|decode"
            r"|decipher) {w}",
            r"(?P<verb>write|put|turn|convert|change|transform) {w} (?:in|into|with|using) {shift}",
            r"(?P<verb>)replace (?:each|every|all)(?: of)?(?: the)? letters? (?:of|in) {w} (?:with|by) the"
            r" (?:letter|one) {shift}"
            r"(?:later|after|after it|further|further on|ahead|following)?(?: in the alphabet)?",
            r"(?:with|using|under|by) (?P<verb>){shift}what (?:does|is|would|will) {w}(?: (?:become|encrypted"
            r"|turn into|be"
            r"|encoded|look like))*",
            r"what (?:does|would|will) {w} (?:become|turn into|change to|look like)(?: (?:with|after|under|using"
            r"|by|if you"
            r"|when))? (?P<verb>){shift}",
            r"(?P<verb>what) is {w} (?:encrypted|encoded|shifted|in|after|under) {shift}",
        ),
    ),
    (
        craft.char_code,
        (
            r"{get} (?P<code>ascii(?: code| value| number)?|unicode(?: code ?point| value)?|code ?point|character"
            r" code) (?:of|for) {a}",
            r"(?P<code>ascii|unicode) (?:code|value|code ?point) (?:of|for) {a}",
            r"what {a} in (?P<code>ascii|unicode)",
        ),
    ),
    (
        craft.char_from,
        (
            r"(?:what|which) (?:character|letter|symbol) (?:has|is|corresponds to|is represented by)(?: the)? ascii"
            r"(?: code| value| number)?(?: of)? {n}",
            r"what is ascii(?: code| value)? {n}",
        ),
    ),
    (
        craft.roman_from,
        (
            r"(?:what|which) (?:number|year|value) (?:is|does)(?: the)?(?: roman numerals?)? {w}(?: (?:represent"
            r"|stand for|mean|in roman numerals))?",
            r"(?:what|which) (?:number|year|value) (?:is )?(?:represented|written) (?:by|as)(?: the)?(?: roman"
            r" numerals?)? {w}",
            r"(?:convert|translate|change|turn|write|what is|what's|what does|express|read)(?: the)?(?: roman)?(?:"
            r" numerals?)? {w} "
            r"(?:to|into|in|as|from|mean in|from roman numerals to)(?: an?)?"
            r"(?: (?:arabic|hindu-arabic|decimal|regular|ordinary|normal|modern|standard|western))?(?: numbers?|"
            r" numerals?| digits| decimal| integer| form| arabic)+",
            r"(?:convert|what is|what's|what does|translate|read)(?: the| a)? roman numerals? {w}(?: mean| stand"
            r" for| represent| equal)?(?: (?:to|as|in) .{2,30})?",
            r"(?:what is|what's)(?: the)? (?:value|numerical value|number) of(?: the)? (?:roman numerals? )?{w}",
        ),
    ),
    (craft.roman_to, _forms("(?:a )?roman numerals?")),
    (
        craft.number_words,
        (
            *_forms("(?:english )?words?|full words?|word|english words|english"),
            r"(?:spell|write)(?: out)? {w}(?: out)?(?: in full)?",
            r"{get} (?P<form>ordinal)(?: form| word)? (?:of|for) {w}",
        ),
    ),
    (
        craft.number_digits,
        _forms("digits|figures|numerals|an? (?:number|integer)|numbers|arabic numerals|numeric form"),
    ),
    (
        craft.spell,
        (
            r"spell(?: out)? {w}(?: (?:out|letter by letter))?",
            r"how (?:do you|is|would you|do i) (?:spell|spelled|spelt) {w}",
            r"how is {w} spell?ed",
        ),
    ),
)
