"""Wordings of the `lexical` skill that ask about words: counting, places, the alphabet, yes or no, order, sorting.

`ASKED` pairs an operation of `wordplay` with patterns for the whole question; the slots are those of `lexical`.
"""

from __future__ import annotations

from trinity_core.agents.skills import wordplay as play
from trinity_core.agents.skills.wording import QUOTED
from trinity_core.agents.skills.wordplay import Run


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
        rf"(?:of )?how many (?:{kind}) (?:long )?(?:is|does|do) {{w}}(?: consist(?: of)?| made of)?{{so}}",
        rf"how many (?:of the )?(?:letters|characters|signs) (?:of|in) {{w}} are (?:{kind})",
        rf"how many (?:{kind}) (?:is|are) {{w}} made (?:up )?of",
    )


_PIECE = (
    r"{a} (?:occurs|appears|is used|is found|shows up|comes up|is) how (?:many times|often) in {w}",
    *_counting("(?:times (?:does |is |do )?)?{a}"),
    r"how (?:many times|often|frequently) (?:does|do|is|are|can you find|do you see) {a}(?: (?:appear|occur|show up"
    r"|come up|"
    r"used|found|present|feature|repeated|repeat|there))* (?:in|inside|within) {w}{so}",
    r"(?:count|give|find|what is|what's)(?: the)? (?:occurrences|instances|appearances|number of (?:occurrences"
    r"|times|instances)|"
    r"frequency|count)(?: of)? {a}(?: (?:appears|occurs|is used))? (?:in|inside|within) {w}",
)

_SORT = r"(?:sort|bring|order|arrange|alphabeti[sz]e|rank|put|list|organi[sz]e|place|rearrange)"
_FEWER = r"(?P<rank>more|most|fewer|fewest|less|least|the most|the fewest|the least)"
_LENGTH = r"(?P<rank>longest|longer|shortest|shorter)"

ASKED: tuple[tuple[Run, tuple[str, ...]], ...] = (
    *((play.count_kind(name), _counting(kind)) for name, (kind, _) in play.KINDS.items()),
    (play.count_piece, _PIECE),
    (
        play.count_kind("letters"),
        (
            r"(?:{get} )?(?:the )?(?:letter count|number of letters|length in letters) (?:of|in|for) {w}{so}",
            rf"(?:{{get}} )?(?:the )?length of (?P<w>(?:the )?(?:word|name|string) .+?|{QUOTED})",
            r"count (?:up )?(?:the |all (?:the )?)?letters (?:of|in|when|after|if) (?:writing |you write |you"
            r" spell )?{w}{so}",
            r"how many letters (?:does it take|do you need|are needed|are used|are there if you|do you use|are"
            r" in|does"
            r"|would|are required) (?P<so>(?:to |when )?(?:spell(?:ing)?|writ(?:e|ing)|it take to (?:spell"
            r"|write))(?: out)?)"
            r" {w}(?:{so}| (?:out )?(?:in|as)(?: an?)? (?:english )?words?)",
            r"how long is (?P<w>(?:the )?(?:word|name|string) .+?)(?: in letters)?",
        ),
    ),
    *(
        (
            play.count_kind(name),
            (rf"(?:{{get}} )?(?:the )?{name.removesuffix('s')} count (?:of|in|for) {{w}}",),
        )
        for name in ("words", "vowels", "consonants", "characters", "digits", "spaces")
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
            r"(?:with|in) (?:which|what) {unit} (?:does|do) {w} (?P<edge>start|begin|end|finish)",
            r"(?:which|what) {unit} (?:is|comes|stands) at the (?P<edge>start|beginning|end|front) of {w}",
            r"{w} (?P<edge>starts|begins|ends|finishes) (?:with|in) (?:which|what) {unit}",
            r"{get} {unit} at the (?P<edge>start|beginning|end) of {w}",
            r"(?:which|what) (?:is )?(?:the )?{unit} (?:is )?(?:at|in) (?:position|index|place) {n} (?:of|in) {w}",
            r"{get} {unit} (?:number|no\.?|at position|in position) {n} (?:of|in) {w}",
            r"(?:which|what) {unit} is (?:at|in)(?: the)? {o} (?:position|place) (?:of|in) {w}",
            r"{get} {o} {unit} {w} (?:has|starts with)",
            r"{get} {unit}(?: (?:that is|which is|that stands|found|standing))? (?:at|in|on|number)(?: (?:the"
            r"|position|place"
            r"|index|spot|number))* (?:{n}|{o}(?: (?:position|place|spot))?) (?:of|in|from|within) {w}",
            r"{get} {unit} (?:of|in|from|within) {w}(?: (?:that is|which is|that stands|found|standing))? (?:at|in|on"
            r"|number)(?: (?:the|position|place|index|spot|number))* (?:{n}|{o}(?: (?:position|place|spot))?)",
            r"(?:what|which) {unit}(?: (?:is|stands|comes|appears|can be found|do you find|sits|of {w} is))?"
            r" (?:at|in|on)"
            r"(?: (?:the|position|place|index|spot|number))* (?:{n}|{o}(?: (?:position|place|spot))?)"
            r" (?:of|in|from|within) {w}",
            r"(?:what|which) {unit} (?:of|in) {w} (?:is|stands|comes|appears|sits)(?: (?:at|in|the|position"
            r"|place|index|spot"
            r"|number))* (?:{n}|{o}(?: (?:position|place|spot))?)",
            r"(?:what|which) {unit} (?:does|do) {w} have (?:at|in)(?: (?:the|position|place|index|spot|number))*"
            r" (?:{n}"
            r"|{o}(?: (?:position|place|spot))?)",
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
            r"where{abc} (?:is|does|do|can) {a}(?: (?:come|stand|appear|occur|fall|lie|be found))?",
            r"(?:in|at) (?:what|which) (?:position|place)(?: of the alphabet)? is {a}(?: in the(?: english)?"
            r" alphabet)?",
            r"(?:in |at |on )?(?:what|which) {place}(?:{abc})? (?:is|does|has|do){abc}? {a}(?: (?:have|hold"
            r"|occupy|come|stand"
            r"|come at|come in|stand at|take|appear|fall|get|at|in))*(?:{abc})?(?P<end> from the end)?",
            r"(?:in|at|on) (?:what|which) {place}{abc}? (?:is|does|do|can){abc}? {a}(?: (?:come|stand|appear"
            r"|occur|fall|lie"
            r"|be found|found|located|stands))*(?:{abc})?(?P<end> from the end)?",
            r"{a}(?: is| has| comes| stands| holds| occupies)?(?: (?:at|in|on))? (?:which|what) {place}{abc}",
            r"{a} is (?:letter )?number what{abc}",
            r"{a} is (?:which|what) (?:letter|number)(?: letter)?{abc}",
            r"(?:counting|going|count|starting)(?: through| up)?(?: (?:the alphabet|from|with|at))* a ?(?:=|is"
            r"|as|equals) ?1"
            r"[^?]{0,20}?,? (?:what|which)(?: number| position)? (?:is|does|has) {a}(?: get| have)?",
            r"{a} is the (?:how[- ]manyeth|what|which) letter{abc}",
            r"{get} (?:{place}|letter number|position number)(?: of| for| that)? {a}(?: (?:has|holds|occupies"
            r"|takes))?{abc}",
            r"how (?:far|many letters|many places|many positions|deep) (?:into|in) the alphabet (?:is|does)"
            r" {a}(?: come)?",
            r"which letter(?: number)?{abc} is {a}",
            r"if a(?: is| =|=) ?1(?:,? b(?: is| =|=) ?2)?[^?]{0,30},? (?:what|which)(?: number)? is {a}",
            r"{get} alphabet(?:ical)? (?:position|number|index|place|rank) of {a}",
        ),
    ),
    (
        play.alphabet_letter,
        (
            r"{get} letter(?: (?:that is|which is|number|at|in|is|comes|stands|found|located|with))*(?: (?:the )?"
            r"(?:position|place|index|number|rank|spot))? (?:{n}|{o}(?: (?:position|place|spot|in line))?){abc}",
            r"(?:what|which) (?:letter|character)(?: (?:is|comes|stands|has|appears|can be found|sits))*(?:"
            r" (?:at|in|the"
            r"|number|position|place|index|on|spot|rank))* (?:{n}|{o}(?: (?:position|place|spot|letter|in"
            r" line))?){abc}",
            r"(?:what|which) letter{abc} (?:is|comes|stands|has)(?: (?:at|in|the|number|position|place|index|on|spot"
            r"|rank))* (?:{n}|{o}(?: (?:position|place|spot|letter|in line))?)",
            r"{get} {o} letter{abc}",
            r"{get} letter{abc} (?:at|in|with|that is at|number)(?: (?:the|position|place|index|number|spot))*"
            r" (?:{n}|{o}(?: (?:position|place|spot))?)",
            r"(?:what|which) (?:is )?(?:the )?{o} letter(?: is it| comes)?{abc}",
            r"letter (?:number )?{n}{abc}(?: is which letter| is what letter)?",
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
            r"does {w} (?:read|spell)(?: out)? (?:the same|the same thing|identically)(?: (?:word|thing))?"
            r" (?:forwards? and"
            r" backwards?|backwards? and forwards?|both ways|(?:when )?(?:read |reversed )?(?:backwards?|in reverse)"
            r"|in both directions)(?: as forwards?)?",
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
            rf"|characters) (?:of|in|from) {{w}}(?: {{how}})?{{fmt}}",
            r"alphabeti[sz]e the letters (?:of|in) {w}{fmt}",
            r"{w} with (?:its|the|all) letters (?:sorted|arranged|ordered|put|written)(?: {how})?{fmt}",
        ),
    ),
    (
        play.sort_items,
        (
            rf"(?:{_SORT}|write|give(?: me)?|what (?:is|are))(?: out)? {{w}},? {{how}}{{fmt}}",
            r"alphabeti[sz]e {w}{fmt}",
            r"in (?:what|which) (?P<how>alphabetical order) (?:do|are|would|should) {w}(?: (?:come|go|appear|be"
            r"|listed))*",
            r"{get} (?P<how>(?:reverse )?alphabetical(?:ly sorted)? (?:order|list|ordering)) (?:of|for) {w}",
            r"(?:how (?:would|do|are|should)|what (?:would|does)) {w}(?: (?:be|look|you|go|appear|sorted|ordered"
            r"|listed"
            r"|arranged))* {how}",
            rf"{_SORT} {{how}} {{w}}",
            rf"(?P<how>(?:reverse )?alphabetically) {_SORT} {{w}}",
        ),
    ),
)
