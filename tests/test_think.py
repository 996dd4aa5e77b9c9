"""Splitting reasoning from text while both stream in, in chunks of any size."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity_core.agents.remote.think import Splitter
from trinity_core.answers import split_reasoning
from trinity_core.types import Piece, Reset


def chunks(text: str, seed: int) -> list[str]:
    """`text` cut at random places; seed 0: one piece, seed 1: single characters."""
    if seed < 2:
        return list(text) if seed else [text]
    rng, parts = random.Random(seed), []
    while text:
        n = rng.randint(1, 7)
        parts.append(text[:n])
        text = text[n:]
    return parts


def split(text: str, stops: tuple[str, ...] = (), seed: int = 0) -> Splitter:
    """Feed `text`, check the pieces against the result, and return the splitter."""
    splitter = Splitter(stops)
    parts = [part for chunk in chunks(text, seed) for part in splitter.content(chunk)] + splitter.end()
    shown = {"text": "", "reasoning": ""}
    for part in parts:
        if isinstance(part, Reset):
            shown = {"text": "", "reasoning": ""}
        else:
            assert part.text
            shown[part.channel] += part.text
    assert shown["text"] == splitter.text
    assert shown["reasoning"].strip() == splitter.reasoning
    return splitter


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ("plain", "plain", ""),
        ("  indented", "  indented", ""),
        ("<think>hm</think>Yes", "Yes", "hm"),
        ("\n<think>\nhm\n</think>\n\nYes", "Yes", "hm"),
        ("< Think >hm</ THINK >Yes", "Yes", "hm"),
        ("<thinking>a</thinking>b", "b", "a"),
        ("<reasoning>a</think>b</reasoning>c", "c", "a</think>b"),
        ("compare both...</think>\nTake A.", "Take A.", "compare both..."),
        ("</think>Take A.", "Take A.", ""),
        ("<think>cut off", "", "cut off"),
        ("First. <think>hm</think> Then.", "First.  Then.", "hm"),
        ("<think>a</think><think>b</think>c", "c", "a\nb"),
        ("<think>a<think>b</think>c</think>d", "d", "a<think>b\nc"),
        ("one </think> two </think> three", "three", "one\ntwo"),
        ("a < b and a <thin line", "a < b and a <thin line", ""),
        ("ends with <thi", "ends with <thi", ""),
        ("write '<think>' first", "write '<think>' first", ""),
        ('the tag "</think>" ends it', 'the tag "</think>" ends it', ""),
        ("use `a </think> b` here", "use `a </think> b` here", ""),
        ("```\n<think>x</think>\n```\ndone", "```\n<think>x</think>\n```\ndone", ""),
        ('<think>not "</think>" yet, it`s</think>ok', "ok", 'not "</think>" yet, it`s'),
        ("<thinker>x</thinker>", "<thinker>x</thinker>", ""),
    ],
)
def test_content_is_split_the_same_however_it_is_cut(content: str, text: str, reasoning: str, seed: int) -> None:
    splitter = split(content, seed=seed)
    assert (splitter.text, splitter.reasoning) == (text, reasoning)


def test_a_late_closing_tag_takes_back_what_was_shown_as_text() -> None:
    splitter = Splitter()
    assert splitter.content("weigh ") == [Piece("weigh ")]
    assert splitter.content("it</think>So: 4") == [
        Piece("it"),
        Reset("What had come so far was the model's reasoning."),
        Piece("weigh it", "reasoning"),
        Piece("So: 4"),
    ]


def test_a_reset_gives_the_reasoning_of_every_source_again() -> None:
    splitter = Splitter()
    splitter.thought("first")
    splitter.content("second")
    parts = splitter.content("</think>done")
    assert isinstance(parts[0], Reset)
    assert parts[1:] == [Piece("first\nsecond", "reasoning"), Piece("done")]


def test_text_is_not_held_back_without_need() -> None:
    splitter = Splitter(("END",))
    assert splitter.content("a word") == [Piece("a word")]
    assert splitter.content(" E") == [Piece(" ")]
    assert splitter.content("N") == []
    assert splitter.content("V") == [Piece("ENV")]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("content", "stops", "text", "cut"),
    [
        ("one END two", ("END",), "one ", True),
        ("one EN", ("END",), "one EN", False),
        ("ENEND x", ("END",), "EN", True),
        ("END", ("END",), "", True),
        ("a\n\nb\n\nc", ("\n\n",), "a", True),
        ("xabcd", ("abcd", "bc"), "xa", True),
        ("x aab", ("aab", "ab"), "x ", True),
        ("nothing", ("",), "nothing", False),
        ("one END <think>no</think> END", ("END",), "one ", True),
        ("<think>an END in it</think>so END more", ("END",), "so ", True),
        ("an END in it</think>so END more", ("END",), "so ", True),
    ],
)
def test_the_text_ends_before_a_stop_text(
    content: str, stops: tuple[str, ...], text: str, cut: bool, seed: int
) -> None:
    splitter = split(content, stops, seed)
    assert (splitter.text, splitter.cut) == (text, cut)


def test_halves_of_a_character_are_joined() -> None:
    splitter = Splitter()
    assert splitter.content("a\ud83d") == [Piece("a")]
    assert splitter.content("\ude00b") == [Piece("\U0001f600b")]
    splitter.thought("\ud83d")
    splitter.content("\ude00 \ud83d")
    splitter.end()
    assert splitter.text == "a\U0001f600b\ufffd \ufffd"
    assert splitter.reasoning == "\ufffd"


PIECES = st.sampled_from(
    ["<think>", "</think>", "<thinking>", "</thinking>", "a", "b ", "\n", "<", ">", "/", "think"]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.integers(1, 40))
def test_chunks_of_any_size_give_what_one_chunk_gives(content: str, seed: int) -> None:
    whole, parts = split(content, ("b a",)), split(content, ("b a",), seed)
    assert (whole.text, whole.reasoning, whole.cut) == (parts.text, parts.reasoning, parts.cut)


WORDS = st.text("ab .\n", min_size=1, max_size=5)


@given(st.lists(st.one_of(WORDS, WORDS.map(lambda t: f"<think>{t}</think>")), max_size=6), st.booleans())
def test_it_agrees_with_the_splitter_of_whole_replies(parts: list[str], missing: bool) -> None:
    content = ("x</think>" if missing else "") + "".join(parts)
    splitter = split(content, seed=3)
    text, reasoning = split_reasoning(content)
    assert splitter.text.strip() == text
    assert "".join(splitter.reasoning.split()) == "".join(reasoning.split())
