"""The `lexical` skill: letters, words, sorting, codes and ciphers, computed rather than guessed.

A question is read by `wording.read` (politeness off, quotations masked), brought into one form by `variants`
("In the word W, what is ...?" and "...: W" become "... in W"), and compared with a table of operations. Each
operation is whole-question patterns with slots ({w} and {v} mentions, {a} and {b} a letter or a quotation, {n} a
number, {o} a place in a row) and a function of `wordplay`. Nothing matches a mere part of a question, so what is
not understood is declined.

Conventions, said in the working where they matter: letters are compared without case unless the question names
one; the vowels are a, e, i, o, u with their accents, y is a consonant; characters are what a reader sees and
include blanks; numbers in words use the British "and"; ties are all given; order is that of the base letters.
Not covered: syllables, rhymes, plurals, meanings, translation, languages other than English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from trinity_core.agents import ciphers
from trinity_core.agents import wordcraft as craft
from trinity_core.agents import wordplay as play
from trinity_core.agents.specialists import Solution
from trinity_core.agents.wording import INTEGER, ORDINAL, QUOTED, Reading, filled, read, template
from trinity_core.agents.wordplay import Run, Slots

_SLOTS = {
    "{w}": r"(?P<w>.+?)",
    "{v}": r"(?P<v>.+?)",
    "{a}": rf"(?:the |an? )?(?:{{case}}(?:letters? |characters? |words? |string |substring |sequence )?"
    rf"(?P<a>{QUOTED}|[^\W_])(?:'?s|es)?(?: letters?| characters?)?)",
    "{b}": rf"(?:the |an? )?(?:letters? |characters? )?(?P<b>{QUOTED}|\S|asterisks?|stars?|dash(?:es)?|hyphens?|"
    r"underscores?|spaces?|dots?|commas?|nothing)",
    "{n}": rf"(?P<n>{INTEGER})",
    "{o}": rf"(?P<o>{ORDINAL})",
    "{case}": r"(?:(?P<case>upper ?case|lower ?case|capital|small) )?",
    "{get}": r"(?:(?:what(?:'s| is| are| would be)|which (?:is|are)|give(?: me)?|find(?: me)?|name|write(?: down)?"
    r"|print|return|show(?: me)?|identify|extract|get|output|take|state|tell me)(?: the)?|the)",
    "{there}": r"(?: (?:are|is|do you (?:see|find|get|have)|does one find|can you (?:see|find)|can be found|appears?"
    r"|occurs?))?"
    r"(?: there)?(?: (?:are|is))?(?: present| found| used| contained)?",
    "{so}": r"(?P<so>,? (?:when|if|once|as|after)?(?: ?(?:it|they|you)(?:'s)?)?(?: is| are| being)? ?(?:written"
    r"|spelled|spelt|spell|"
    r"write|expressed)(?: it)?(?: out)?(?: (?:in|as|with)(?: english)?(?: words?| full| english| letters)?)?)?"
    r"(?P<but>,? \(?(?:excluding|not counting|not including|without(?: counting)?|ignoring|including|counting)(?:"
    r" the| any)? "
    r"(?:spaces|blanks|punctuation|case|hyphens?)(?: (?:and|or) (?:spaces|punctuation))?\)?)?",
    "{a1}": r"(?:,? ?\(?(?:(?:if|where|with|using|when|given) )?a ?(?:=|is|equals) ?1\b.*)?(?: in the alphabet)?",
    "{unit}": r"(?P<unit>letters?|characters?|vowels?|consonants?|digits?|words?|items?|elements?)",
    "{order}": r"(?: (?:alphabetically|in alphabetical order|in (?:the|a|an english) dictionary|in the alphabet|"
    r"lexicographically|in dictionary order|when sorted alphabetically))",
    "{how}": r"(?P<how>(?:(?:in|into|by|from|to|reverse|reversed|alphabetical(?:ly)?|alphabetic|alphabet|descending"
    r"|ascending|"
    r"order|a|z|a-z|z-a|length|increasing|decreasing|lexicographic(?:al|ally)?|numerical(?:ly)?|numeric|dictionary|"
    r"backwards|the|their|of|letters|shortest|longest|smallest|largest|first|last|word)\b,? ?)+)",
    "{shift}": r"(?P<how>(?:(?:using|with|by|of|a|an|the|in|through|under|and|caesar|cipher|cypher|code|shift|shifted"
    r"|shifting|"
    r"key|rotation|right|left|forwards?|backwards?|back|ahead|down|up|to|places?|positions?|steps?|spots?|letters?"
    r"|each|"
    r"letter|alphabet|every|rot|rot\d\d?|-?\d{1,4}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
    r"\b[ ,()=-]*)+)",
}


def _counting(kind: str) -> tuple[str, ...]:
    """The ways to ask how many of a kind there are in {w}."""
    return (
        rf"how many (?:total )?(?:{kind}){{there}} (?:in|inside|within|for) {{w}}{{so}}",
        rf"how many (?:{kind}) (?:does|do|did|would) {{w}} (?:have|has|contain|include|consist of|use){{so}}",
        rf"how many (?:{kind}) (?:{{w}} (?:has|have|contains?)|(?:make up|form|spell) {{w}}){{so}}",
        rf"(?:(?:count|find|give|determine|calculate|compute|report|what is|what's|state|tell me)(?: me)?(?: up)? )?"
        rf"(?:how many |(?:the )?(?:total )?(?:number|count|amount) of )(?:the |all )?(?:{kind})"
        rf"{{there}} (?:in|of|inside|within|does) {{w}}(?: have| contain)?{{so}}",
        rf"count(?: up)? (?:the |all |all the )?(?:{kind}){{there}} (?:in|of|inside|within) {{w}}{{so}}",
        rf"{{w}} (?:has|have|contains?) how many (?:{kind}){{so}}",
    )


_PIECE = (
    *_counting("(?:times (?:does |is |do )?)?{a}"),
    r"how (?:many times|often|frequently) (?:does|do|is|are|can you find|do you see) {a}(?: (?:appear|occur|show up"
    r"|come up|"
    r"used|found|present|feature|repeated|repeat|there))* (?:in|inside|within) {w}{so}",
    r"(?:count|give|find|what is|what's)(?: the)? (?:occurrences|instances|appearances|number of (?:occurrences"
    r"|times|instances)|"
    r"frequency|count)(?: of)? {a}(?: (?:appears|occurs|is used))? (?:in|inside|within) {w}",
)

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
_REMOVE = (
    r"(?:remov|delet|drop|strip|tak|eras|eliminat|omit)(?:e|ing|ping|ting)?(?: (?:out|away|off))?"
    r"(?: all| every| each| any)?(?: of)?(?: the| its)?"
)
_SORT = r"(?:sort|order|arrange|alphabeti[sz]e|rank|put|list|organi[sz]e|place|rearrange)"
_FEWER = r"(?P<rank>more|most|fewer|fewest|less|least|the most|the fewest|the least)"
_LENGTH = r"(?P<rank>longest|longer|shortest|shorter)"

_TABLE: tuple[tuple[Run, tuple[str, ...]], ...] = (
    *((play.count_kind(name), _counting(kind)) for name, (kind, _) in play.KINDS.items()),
    (play.count_piece, _PIECE),
    (
        play.count_kind("letters"),
        (
            r"(?:(?:what is|what's|give|find) )?(?:the )?(?:letter count|length) of {w}",
            r"how long is (?P<w>(?:the )?(?:word|name|string) .+?)(?: in letters)?",
        ),
    ),
    *(
        (
            play.list_kind(name),
            (
                r"(?:list|name|find|show|give(?: me)?|extract|what are|which are)(?: all)?(?: of)?(?: the)? "
                rf"(?:{play.KINDS[name][0]})"
                r"{there} (?:in|of|from) {w}",
                rf"(?:which|what) (?:{play.KINDS[name][0]}) (?:are|appear|occur|is|does)(?: used| found| there|"
                rf" present)? ?(?:in )?{{w}}(?: have| contain)?",
            ),
        )
        for name in ("vowels", "consonants", "capital letters", "digits", "different letters", "letters")
    ),
    (
        play.commonest,
        (
            r"(?:which|what) {unit} (?:appears|occurs|is used|shows up|is)(?: the)? (?P<rank>most|least)(?: often|"
            r" frequently| common| frequent)*"
            r" in {w}",
            r"{get} (?P<rank>most|least) (?:common|frequent|used|frequently (?:used|occurring)) {unit} in {w}",
        ),
    ),
    (
        play.nth,
        (
            r"{get} {o} {unit}(?P<end> from the end)? (?:of|in|from) {w}",
            r"(?:which|what) {unit} (?:is|comes)(?: the)? {o} in {w}",
            r"(?:which|what) {unit} is in the (?P<o>middle) of {w}",
            r"(?:which|what) {unit} (?:does|do) {w} (?P<edge>start|begin|end|finish)(?: with| in)?",
            r"(?:with )?(?:which|what) {unit} (?P<edge>starts|begins|ends) {w}",
            r"(?:which|what) (?:is )?(?:the )?{unit} (?:is )?(?:at|in) (?:position|index|place) {n} (?:of|in) {w}",
            r"{get} {unit} (?:number|no\.?|at position|in position) {n} (?:of|in) {w}",
            r"(?:which|what) {unit} is (?:at|in)(?: the)? {o} (?:position|place) (?:of|in) {w}",
            r"{get} {o} {unit} {w} (?:has|starts with)",
        ),
    ),
    (play.stretch, (r"{get} (?P<o>first|last) {n} {unit} (?:of|in|from) {w}",)),
    (
        play.position,
        (
            r"(?:at |in )?(?:what|which) (?:position|place|index)(?P<all>s)? (?:is|are|does|do) {a}(?: (?P<o>first"
            r"|last))?"
            r"(?: appear| occur| found| come)? in {w}",
            r"{get} (?:position|index|place)(?P<all>s)? of (?:the )?(?:(?P<o>first|last) )?(?:occurrence of )?{a}"
            r" in {w}",
            r"where (?:is|does|do) {a}(?: (?P<o>first|last))?(?: appear| occur| come)? in {w}",
            r"which {unit} (?:of|in) {w} is {a}",
        ),
    ),
    (
        play.edge_letters,
        (
            r"{get} (?P<what>acronym|initials|initialism|abbreviation) (?:of|for|from|formed (?:from|by)) {w}",
            r"(?:make|form|create|build|write)(?: an| the) (?P<what>acronym|initialism) (?:of|for|from|out of) {w}",
            r"(?P<what>what) (?:word )?(?:do|does) (?:the )?(?P<o>first|last) letters? of (?:each word|the words"
            r"|every word) (?:of|in|from)"
            r" {w} (?:spell|form|make)(?: out)?",
            r"{get} (?P<what>)(?:word formed (?:by|from) )?(?:the )?(?P<o>first|last) letters? of (?:each|every|the"
            r"|all)(?: the)? words? (?:of|in|from) {w}",
        ),
    ),
    (
        play.alphabet_place,
        (
            r"(?:what|which) (?:number(?: letter)?|position|place|letter(?: number)?)(?: (?:in|of) the(?: english)?"
            r" alphabet)?"
            r" (?:is|does|has) {a}(?: (?:in|of) the(?: english)? alphabet)?(?P<end> from the end)?",
            r"{get} (?:position|place|number|index|rank|alphabetical position) (?:of|for) {a} in the(?: english)?"
            r" alphabet(?P<end> from the end)?",
            r"where (?:is|does) {a} (?:in|come in|fall in|stand in) the(?: english)? alphabet",
            r"(?:in|at) (?:what|which) (?:position|place)(?: of the alphabet)? is {a}(?: in the(?: english)?"
            r" alphabet)?",
        ),
    ),
    (
        play.alphabet_between,
        (r"how many letters (?:are )?(?:there )?(?:in )?between {a} and {b}(?: in the(?: english)? alphabet)?",),
    ),
    (
        play.alphabet_near,
        (
            r"(?:what|which) letter (?:comes|is|stands|appears)(?: {n} (?:places?|letters?|positions?|steps?))?"
            r"(?: (?:right|directly|immediately|just))? (?P<way>after|before) {a}(?: in the(?: english)? alphabet)?",
            r"{get} letter(?: {n} (?:places?|letters?|positions?))?(?: right| directly| immediately)? (?P<way>after"
            r"|before) {a}"
            r"(?: in the(?: english)? alphabet)?",
            r"(?:what|which) letter (?P<way>follows|precedes) {a}(?: in the(?: english)? alphabet)?",
        ),
    ),
    (
        play.letter_sum,
        (
            r"(?:(?:what is|what's|find|calculate|compute|give) )?(?:the )?(?:sum|total) of (?:the )?(?:alphabet"
            r"(?:ical)? |numerical )?"
            r"(?:letter values?|values? of (?:the |its |all )?letters|positions? of (?:the )?letters|letter"
            r" positions|letters' values|letters|values|positions)"
            r"(?: (?:of|in|for))? {w}{a1}",
            r"(?:(?:what is|what's|find|calculate|compute|give|add up) )?(?:the )?(?:(?:total )?letter (?:sum"
            r"|values?)|alphabet(?:ical)? (?:value|sum)|letter positions)"
            r" (?:of|in|for) {w}{a1}",
            r"if a ?(?:=|is|equals) ?1[^?]{0,40}?,? what is (?:the )?(?:sum|value|total)(?: of the letters)? (?:of"
            r"|in|for) {w}",
            r"(?:what (?:do|does)|add up)(?: the)? letters (?:of|in) {w}(?: (?:add up|sum) to)?{a1}",
        ),
    ),
    (
        play.digit_sum,
        (
            r"(?:(?:what is|what's|find|calculate|compute|give) )?(?:the )?(?:digit sum|sum of (?:the |all )?digits)"
            r" (?:of|in) {w}",
        ),
    ),
    (play.vowel_or_consonant, (r"is {a} (?P<kind>an? (?:vowel|consonant)(?: or an? (?:vowel|consonant))?)",)),
    (
        play.palindrome,
        (
            r"(?:is|are) {w} (?:an? )?palindromes?",
            r"is {w} the same (?:when )?(?:spelled |read |written )?(?:backwards?|in reverse)(?: as forwards?)?",
            r"does {w} read the same (?:forwards? and backwards?|backwards? and forwards?|both ways)",
        ),
    ),
    (
        play.pangram,
        (r"is {w} a pangram", r"does {w} (?:contain|use) (?:every|all)(?: the| 26)? letters? of the alphabet"),
    ),
    (
        play.isogram,
        (r"is {w} an isogram", r"does {w} have (?:any )?(?P<repeat>repeated|repeating|duplicate) letters"),
    ),
    (
        play.anagram,
        (
            r"(?:is|are) {w} (?:an )?anagrams? of {v}",
            r"(?:is|are) (?:the words )?{w} and {v} anagrams(?: of each other| of one another)?",
            r"can {w} be (?:rearranged|anagrammed) (?:to (?:form|make|spell)|into) {v}",
            r"are {w} anagrams(?: of each other| of one another)?",
        ),
    ),
    (
        play.affix,
        (
            r"does {w} (?P<verb>start|begin|end|finish) (?:with|in) {a}",
            r"does {w} (?P<verb>start|begin|end) (?:with|in) an? (?P<a>vowel|consonant)",
            r"does {w} (?P<verb>contain|include|have) {a}(?: in it)?",
            r"(?:is|does) {a} (?P<verb>in|appear in|occur in|part of|contained in|a substring of|found in|present"
            r" in) {w}",
            r"is there {a} (?P<verb>in) {w}",
        ),
    ),
    (
        play.longest,
        (
            rf"{{get}} {_LENGTH}(?: (?:(?P<named>words?|names?|strings?)|items?|one))?(?: in| of| from| among| out"
            rf" of| here| between)?[,:-]? {{w}}",
            rf"(?:which|what)(?: (?:(?P<named>words?|names?|strings?)|items?|one))? is(?: the)? {_LENGTH}(?: in| of"
            rf"| among| between)?[,:-]? {{w}}",
            rf"(?:which|what)(?: (?P<named>word|name))? (?:in|of|among) {{w}} is(?: the)? {_LENGTH}(?: "
            r"(?P<named>word|name))?",
            rf"(?:which|what)(?: (?:word|name|one))? (?:has|contains|uses)(?: the)? {_FEWER} (?P<kind>letters"
            r"|vowels|consonants|characters)[,:]?"
            r"(?: in| of| among)? {w}",
        ),
    ),
    (
        play.compare,
        (
            r"does {w} (?:have|contain) (?P<rank>more|fewer|less) (?P<kind>letters|vowels|consonants|characters)"
            r" than {v}",
            r"is {w} (?P<rank>longer|shorter) than {v}",
            r"how many (?P<by>(?P<rank>more|fewer|less)) (?P<kind>letters|vowels|consonants|characters) (?:does|do"
            r"|are in|are there in) {w} "
            r"(?:have |contain )?than(?: in)? {v}",
        ),
    ),
    (
        play.alphabetical_end,
        (
            r"(?:alphabetically|in alphabetical order),? (?:which|what)(?: word| name| one)? (?:comes|is|goes) "
            r"(?P<rank>first|last)[,:-]? {w}",
            r"(?:which|what)(?: (?:word|name|one|item|letter|of these))? (?:comes|is|would come|appears|goes|would"
            r" be) (?P<rank>first|last){order}[,:-]?"
            r"(?: in| of| among| between| out of)? {w}",
            r"(?:which|what)(?: (?:word|one|name))? (?:of|in|among) {w} (?:comes|is|would come|appears) "
            r"(?P<rank>first|last){order}",
            r"(?:which|what) comes (?P<rank>first|last), {w},?{order}",
            r"{get} (?:alphabetically )?(?P<rank>first|last)(?: word| name| item)?{order} (?:of|in|among|from) {w}",
            r"{get} alphabetically (?P<rank>first|last)(?: word| name| item) (?:of|in|among|from) {w}",
        ),
    ),
    (
        play.alphabetical_before,
        (r"does {w} come (?P<way>before|after) {v}{order}", r"is {w} (?P<way>before|after) {v}{order}"),
    ),
    (
        play.sort_letters,
        (
            rf"(?:{_SORT}|write|give(?: me)?|what (?:is|are))(?: out)?(?: the| all the| all)? (?:letters"
            rf"|characters) (?:of|in|from) {{w}}(?: {{how}})?",
            r"alphabeti[sz]e the letters (?:of|in) {w}",
        ),
    ),
    (
        play.sort_items,
        (
            rf"(?:{_SORT}|write|give(?: me)?|what (?:is|are))(?: out)? {{w}},? {{how}}",
            r"alphabeti[sz]e {w}",
            rf"{_SORT} {{how}} {{w}}",
            rf"(?P<how>(?:reverse )?alphabetically) {_SORT} {{w}}",
        ),
    ),
    (
        craft.remove,
        (
            rf"{_REMOVE} {_WHAT} (?:from|in|of) {{w}}",
            rf"{_REMOVE} (?:occurrences of |instances of )?{{a}} (?:from|in|out of) {{w}}",
            rf"(?:(?:what is|what's|write|spell|say|give|print) )?{{w}} without (?:any |all |the |its |all the )?"
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
            *_forms("backwards?|reverse(?:d)?|reversed order|back to front", "reverse|invert|flip"),
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
            r"(?:apply|use)(?: the| a)? {shift}(?P<verb>encrypt|encode|decrypt|decode|)\b ?{w}",
            r"(?P<verb>encrypt|encode|shift|decrypt|decode|decipher) {shift}{w}",
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

_HEAD = (
    r"(?:in|for|given|take|taking|consider|considering|of|out of|among"
    r"|between|from|with|looking at|using|here is|here are|look at)"
)
_ACTION = (
    r"(?:how|what|which|where|is|are|does|do|count|find|reverse|replace|remove|delete|sort|spell|write|give|tell"
    r"|convert|print|"
    r"capitali[sz]e|repeat|arrange|encode|decode|put|identify)\b"
)
_IT = re.compile(
    r"\b(?:it|them|(?:this|that|the|these|those|each of these|the following|the given|the above)(?: (?:following"
    r"|given))?"
    r" (?:words?|sentences?|phrases?|strings?|lists?|texts?|names?|items|letters|message|numbers?))\b(?! of| in)",
    re.I,
)
_PREFACE = re.compile(
    rf"(?:{_HEAD} )(?P<w>.{{1,200}}?) ?[,.;:-]? (?:and |then )?(?P<rest>(?:{_ACTION}|(?<=[,.;:] )(?:list|name|order"
    r"|at)\b).+)",
    re.I,
)
_COLON = re.compile(r"(?P<head>[^:]{3,160}?) ?: ?(?P<tail>.+)")
_FOLLOWING = re.compile(
    r"(?:all |each )?\b(?:the |this |these |that |those )?(?:following|these|this|those|below|given)(?:"
    r" \w+)??"
    r"(?: (?P<noun>words?|sentences?|phrases?|strings?|lists?|texts?|names?|items|letters|messages?|numbers?"
    r"|titles?|numerals?))?(?: below)?\b",
    re.I,
)


_RESULT = re.compile(
    r"(?:(?:what|which)(?: (?:word|string|text|result|letters?))? (?:do|would|will|can) (?:you|we|i) (?:get|have"
    r"|obtain|end up with|be left with|form|make)"
    r"(?: (?:if|when|by))?(?: (?:you|we|i))? (?:to )?|what (?:is left|remains|happens|is the result|results)(?:"
    r" of)?(?: (?:if|when))?(?: (?:you|we|i))? )(?P<rest>.+)"
    r"|(?:if|when) (?:you|we|i) (?P<back>.+?),? (?:then )?(?:what|which)(?: .{0,30})? (?:get|left|remains?|result"
    r"|have|it|becomes?|word|appears)",
    re.I,
)


_WHETHER = re.compile(
    r"(?:(?:check|determine|verify|decide|test|find out|is it true)(?: if| whether| that)?|whether) (?P<subject>.+?) "
    r"(?P<verb>is|are|contains?|starts?|ends?|begins?) (?P<rest>.+)",
    re.I,
)


def variants(reading: Reading) -> Iterator[Reading]:
    """The question as asked, then with "...: W" and "In W, ..." brought into the form "... in W"."""
    if found := _COLON.fullmatch(reading.frame):
        head, tail = found["head"].strip(), found["tail"].strip()
        quotes = reading.quotes
        if not re.fullmatch(QUOTED, tail):
            tail_text = (
                tail
                if re.search(QUOTED, tail) is None
                else ", ".join(reading.plain(mark) for mark in re.findall(QUOTED, tail))
            )
            quotes, tail = (*quotes, tail_text), chr(0xE000 + len(quotes))
        if len(quotes) <= 256:
            place = _FOLLOWING.search(head)
            named = f"{place['noun']} {tail}" if place and place["noun"] else tail
            if place:
                yield Reading(head[: place.start()] + named + head[place.end() :], quotes)
            for joint in (" in ", " "):
                yield Reading(head + joint + tail, quotes)
    yield reading
    if found := _WHETHER.fullmatch(reading.frame):
        verb, (subject, rest) = found["verb"].lower(), found.group("subject", "rest")
        asked = f"{verb} {subject}" if verb in {"is", "are"} else f"does {subject} {verb.removesuffix('s')}"
        yield replace(reading, frame=f"{asked} {rest}")
    if found := _RESULT.fullmatch(reading.frame):
        yield replace(reading, frame=found["rest"] or found["back"])
    if found := _PREFACE.fullmatch(reading.frame):
        word, rest = found["w"], found["rest"]
        if _IT.search(rest):
            yield replace(reading, frame=_IT.sub(lambda m: word, rest, count=1))
        for joint in (" in ", " of "):
            yield replace(reading, frame=rest + joint + word)


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[Run, tuple[re.Pattern[str], ...]], ...]:
    return tuple((run, tuple(template(text, _SLOTS) for text in texts)) for run, texts in _TABLE)


class Lexical:
    """Answers questions about letters, words, order and codes; pure and safe to share between threads."""

    name = "lexical"
    domain = "letters, words, sorting, and ciphers"

    def solve(self, question: str) -> Solution | None:
        """The solution of one question, or None when it is outside the domain or not understood. Never raises."""
        reading = read(question)
        return None if reading is None else _solve(reading, deep=True)


def _solve(reading: Reading, deep: bool) -> Solution | None:
    """Try every operation on every form of the question; parts that are questions themselves only once deep."""

    def inner(part: Reading) -> Solution | None:
        return _solve(part, deep=False) if deep else None

    for variant in islice(variants(reading), 8):
        for run, patterns in _table():
            for pattern in patterns:
                if (match := pattern.fullmatch(variant.frame)) and (
                    found := run(Slots(variant, filled(match), inner))
                ):
                    return found
    return None
