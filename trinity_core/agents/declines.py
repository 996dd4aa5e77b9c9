"""What a language model without tools cannot do, told by the kind of the request before any token is spent.

Kinds: the state of the world right now (weather, prices, news, scores, the clock), files, pictures and pages that it
cannot see, pictures and sounds that it cannot make, acts in the world (booking, sending, setting alarms), the user's
private data, and messages that hold no words it reads. The patterns describe kinds, so they miss unusual wordings;
they are built to let ordinary knowledge questions pass ("What causes rain?", "What do you call a baby cat?").
"""

from __future__ import annotations

import re
import unicodedata

from trinity_core.types import Brief, Role


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)


_NOW = (
    r"(?:today(?:['’]s)?|tonight|tomorrow|yesterday|now|currently|current|latest|live|newest|recent|at the moment"
    r"|this (?:morning|afternoon|evening|week|weekend|month|year)|last (?:night|week|weekend)|as of (?:now|today))"
)
_CHANGING = (
    r"(?:weather|forecast|temperature|rain\w*|snow\w*|humidity|news|headlines?|stocks?|shares?|prices?|cost|worth"
    r"|exchange rate|interest rate|scores?|match|game|traffic|flights?|trains?|buses|delay\w*|polls?|elections?"
    r"|markets?|events?|trending|in theat(?:er|re)s|open|version|release|president|prime minister|chancellor|ceo)"
)
_LIVE = _any(
    rf"\b{_NOW}\b[^.?!]{{0,50}}\b{_CHANGING}\b(?! mean)",
    rf"\b{_CHANGING}\b[^.?!]{{0,50}}\b{_NOW}\b",
    r"\bwhat(?:['’]s| is) the weather (?:like )?(?:in|at|for|outside|here|over)\b(?![^?]*\b(?:winter|summer|spring"
    r"|autumn|fall|usually|typical\w*|generally|normally|desert|january|february|march|april|may|june|july|august"
    r"|september|october|november|december)\b)",
    r"\bhow(?:['’]s| is) the (?:weather|traffic)\b",
    r"\bwhat(?:['’]?s| is) the weather(?: like)?\s*\??$",
    r"^\s*(?:please )?(?:tell|give|show|read) me (?:the|some) (?:news|headlines)\b",
    r"\bwhat(?:['’]?s| is) (?:happening|going on|new|on tv)\b[^?]*\b(?:today|tonight|now|this week)\b",
    r"\bwhen (?:is|does) (?:the|my) next (?:bus|train|tram|flight|ferry|game|match|episode|meeting)\b",
    r"\b(?:what(?:['’]?s| is)|tell me|give me) (?:today['’]?s|the current|the present) (?:date|day|time|weekday)\b",
    r"\b(?:will|is) it (?:going to |gonna )?(?:be )?(?:rain|snow|sunny|cold|hot|warm|storm)\w*\b"
    r"[^?]*\b(?:in|at|on|out|outside|later|tomorrow|today|tonight|now|here|this|next)\b"
    r"(?![^?]*\b(?:space|mars|venus|the moon|winter|summer)\b)",
    r"\bdo i need an? (?:umbrella|coat|jacket)\b",
    r"\bwhat time is it\b",
    r"\bwhat(?:['’]s| is) the (?:time|date)(?:\s*(?:\?|$|now|right|today|in [A-Z]))",
    r"\bwhat (?:day|date|month|year) is (?:it|today)\b",
    r"\b(?:price|value|worth|cost) of (?:a |one )?(?:bitcoin|ethereum|dogecoin|[A-Z]{3,5} (?:stock|shares?))",
    r"\b(?:how much (?:is|does)|what(?:['’]s| is)) (?:a |one )?(?:bitcoin|ethereum|dogecoin)\b"
    r"[^?]*\b(?:worth|cost|at|price)",
    r"\b(?:stock|share) price\b",
    r"\bwho (?:won|is winning|lost)\b[^?]*\b(?:last night|yesterday|today|this (?:morning|week|weekend))\b",
)
_FILE = r"(?:pdf|docx?|xlsx?|pptx?|csv|txt|png|jpe?g|gif|webp|mp[34]|wav|mov|zip)"
_SIGHT = (
    r"(?:images?|photos?|pictures?|screenshots?|videos?|pdfs?|recordings?|spreadsheets?|audio|files?|attachments?"
    r"|scans?)"
)
_UNSEEN = _any(
    r"\b(?:attached|attachment|enclosed)\b",
    rf"\b(?:this|these|my|that)\s+(?:\w+\s+)?{_SIGHT}\b",
    rf"\bthe\s+{_SIGHT}\s+(?:i|that i|above|below|here|you)\b",
    r"\bi(?:['’]ve| have)?\s+(?:just\s+)?(?:uploaded|sent|shared|attached)\b",
    rf"\b[\w-]+\.{_FILE}\b",
    r"https?://|\bwww\.",
    r"\b(?:search|browse|look (?:it )?up|check)\b[^.?!]{0,30}\b(?:web|internet|online|google|website)\b",
    r"^\s*(?:please\s+)?google\b",
)
_POLITE = (
    r"^\s*(?:(?:hey|hi|hello|ok|please|now|then)[, ]+|(?:can|could|would|will) you (?:please )?"
    r"|i (?:want|need) you to )*"
)
_MEDIA = _any(
    _POLITE + r"(?:draw|paint|sketch|photograph)\s+"
    r"(?:me\b|us\b|an?\s+(?!conclusion|distinction|comparison|lesson|line\b))",
    _POLITE + r"(?:generate|create|make|design|render|edit|compose|record|sing)\b[^.?!]{0,30}\b"
    r"(?:image|picture|photo|drawing|logo|illustration|video|animation|audio|recording|melody|podcast)\b",
)
_ACT = _any(
    _POLITE + r"(?:book|reserve)\s+(?:me|us|a|an|the|my|two|three|\d)\b",
    _POLITE + r"order\s+(?:me|us|a|an|some|my)\b",
    _POLITE + r"(?:buy|purchase|pay|donate)\s+(?:me|us|an?|the|some|my|this|that|\$?\d)\b",
    _POLITE + r"(?:send|forward|e-?mail|text|phone|message)\s+(?:my|him|her|them|us|an?|the|this|it|\$?\d)\b",
    _POLITE + r"call\s+(?:me\s+(?:an?|at)|my|him|her|them|an?|the|\+?\d)\b",
    _POLITE + r"(?:schedule|cancel|reschedule)\s+(?:me|my|a|an|the|our)\b",
    _POLITE + r"(?:set|start)\s+(?:me\s+)?(?:an?|the|my)\s+(?:\w+[- ])?(?:alarm|timer|reminder|thermostat)\b",
    _POLITE + r"(?:remind|wake|notify)\s+me\b",
    _POLITE + r"(?:turn|switch)\s+(?:on|off|up|down)\b",
    _POLITE + r"play\s+(?:me|an?|some|the|my)\b(?!\s+(?:role|part|character)\b)",
    _POLITE + r"(?:post|tweet|upload|publish|download|install|delete|unsubscribe)\s+"
    r"(?:me|my|this|it|the|a|an|from)\b",
    _POLITE + r"(?:transfer|wire)\s+(?:\$|€|£|\d|money|my)",
)
_PRIVATE = _any(
    r"\bwhat(?:['’]s| is| are) (?:on |in )?my (?:\w+ )?(?:password|balance|ip(?: address)?|location|address"
    r"|schedule|calendar|inbox|e-?mails?|appointments?|phone number|account)\b",
    r"\bwhere am i\b",
    r"\bwhat did i\b[^?]*\b(?:yesterday|today|last (?:night|week|month|year))\b",
    r"\b(?:check|read|open) my (?:\w+ )?(?:e-?mails?|inbox|messages|calendar|balance|account)\b",
)

_REASONS = (
    (_LIVE, "I have no live data, so I cannot know what holds at this moment."),
    (_UNSEEN, "I cannot open files, pictures or web pages; I only read the text of this conversation."),
    (_MEDIA, "I can only write text, so I cannot make pictures, sounds or videos."),
    (_ACT, "I cannot act outside this conversation, so I cannot do that for you."),
    (_PRIVATE, "I have no access to your accounts, devices or private data."),
)


def reason_to_decline(brief: Brief) -> str | None:
    """One sentence saying why this request is beyond a model without tools; None when it may try.

    A Thinker may plan anything, so only messages that hold no words are declined for it.
    """
    question = unicodedata.normalize("NFKC", brief.question).strip()
    if not any(character.isalnum() for character in question):
        return "There is no question in this message."
    letters = [character for character in question if character.isalpha()]
    if sum(unicodedata.name(c, "").startswith("LATIN") for c in letters) * 2 < len(letters):
        return "I only read texts in the Latin alphabet, English best."
    if brief.role is Role.THINKER:
        return None
    return next((reason for pattern, reason in _REASONS if pattern.search(question)), None)
