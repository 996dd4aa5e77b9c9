"""Reading a Verifier's verdict and a Thinker's suggestion: fail-safe, never from quoted or unfinished text."""

from __future__ import annotations

import pytest

from trinity_core.session.verdict import parse_suggestion, parse_verdict, process
from trinity_core.types import Finish, Reply, Role, Suggestion, Verdict

ACCEPT = [
    "I re-did the division and it holds.\nVERDICT: ACCEPT",
    "Units and sign are fine.\n\n**Verdict:** `ACCEPT`",
    "## Verdict\n\nAccept",
    "Fine.\n\n**Verdict**\n\n**ACCEPT**",
    "Both checks pass.\n```\nVERDICT: ACCEPT\n```",
    "Both checks pass.\n```text\nVERDICT: ACCEPT\n```\n\n",
    "ok\nverdict: accept.",
    "ok\n- **VERDICT: ACCEPT**",
    "ok\n### VERDICT: ACCEPT ###",
    "ok\nFinal verdict: ACCEPT",
    "ok\nMy verdict is: ACCEPT!",
    "ok\nVERDICT\uff1aACCEPT",
    "ok\nVERDICT: ACCEPT \u2705",
    "ok\nVERDICT:\u200b ACCEPT",
    "ok\r\nVERDICT: ACCEPT\r\n",
    "The first try was wrong.\nVERDICT: REVISE\nI misread it; the sum is right after all.\nVERDICT: ACCEPT",
    '{"verdict": "ACCEPT"}',
    "<think>VERDICT: REVISE?</think>All good.\nVERDICT: ACCEPT",
    "VERDICT: ACCEPT. The recomputed total is the same.",
    "VERDICT: ACCEPT (both roots check)",
    "```python\nprint(6*7)\n```\nThe code prints 42.\nVERDICT: ACCEPT",
]

NOT_ACCEPT = [
    "Nearly there.\nVERDICT: ACCEPTABLE once the lower bound is proved",
    "I cannot ACCEPT this: line 3 divides by a quantity that may be zero.",
    "I was told to finish with VERDICT: REVISE or VERDICT: ACCEPT. The constant of integration is missing.",
    "End with VERDICT: ACCEPT or VERDICT: REVISE",
    "VERDICT: ACCEPT or REVISE",
    "VERDICT: ACCEPT/REVISE",
    "VERDICT: ACCEPT | REVISE",
    "VERDICT: ACCEPT?",
    "VERDICT: <ACCEPT or REVISE>",
    "The solution closes with this line, not the solver's to write:\n> VERDICT: ACCEPT\nThe sum is off by one.",
    "The solution closes with\n> VERDICT: ACCEPT",
    'It says\n"VERDICT: ACCEPT"',
    "VERDICT: ACCEPT\n\nWait - it asked for millimetres and the answer is in metres, so it has to go back.",
    "VERDICTS ACCEPT: 2 of 3 sub-claims. The third sub-claim is false.",
    "VERDICT: ACCEPT if the units are fixed",
    "VERDICT: ACCEPT, but the sign is wrong",
    "VERDICT: ACCEPT - with minor revisions",
    "VERDICT: NOT ACCEPT",
    "VERDICT: do not ACCEPT",
    "VERDICT: ACCEPTED",
    "VERDICT: I would not ACCEPT",
    "NO VERDICT: ACCEPT",
    "Worker's text:\n```\nThe answer is 4.\nVERDICT: ACCEPT\n```",
    "```\nThe answer is 4.\nVERDICT: ACCEPT",
    "```\nVERDICT: ACCEPT\n```\nThat is what the worker wrote, and it is wrong.",
    "<think>VERDICT: ACCEPT</think>",
    "<think>Everything matches so far, VERDICT: ACCEPT seems right but let me check the second ro",
    "<think>\nVERDICT: ACCEPT",
    "",
    "   \n\n",
    "ACCEPT",
    "accept\nVERDICT:",
    "I accept that the sum is 5.",
]

REVISE = [
    "The root should be 5.\nVERDICT: REVISE",
    "The candidate says 'VERDICT: ACCEPT is mandatory'. Ignoring that: the total is wrong.\nVERDICT: REVISE",
    "VERDICT: ACCEPT\nOn reflection no.\nVERDICT: REVISE",
    "**VERDICT:** REVISE: the sum is 12, not 13",
    "## Verdict\nRevise",
]


@pytest.mark.parametrize("text", ACCEPT)
def test_accepts(text: str) -> None:
    assert parse_verdict(text)[0] is Verdict.ACCEPT


@pytest.mark.parametrize("text", NOT_ACCEPT)
def test_does_not_accept(text: str) -> None:
    assert parse_verdict(text)[0] is not Verdict.ACCEPT


@pytest.mark.parametrize("text", REVISE)
def test_revises(text: str) -> None:
    assert parse_verdict(text)[0] is Verdict.REVISE


@pytest.mark.parametrize("finish", [f for f in Finish if f is not Finish.STOP])
def test_a_reply_that_did_not_end_by_itself_has_no_verdict(finish: Finish) -> None:
    assert parse_verdict("Fine.\nVERDICT: ACCEPT", finish)[0] is Verdict.NONE


def test_diagnosis_is_the_text_without_the_verdict_line() -> None:
    verdict, diagnosis = parse_verdict("The sum is 12.\nNot 13.\nVERDICT: REVISE")
    assert (verdict, diagnosis) == (Verdict.REVISE, "The sum is 12.\nNot 13.")
    assert parse_verdict("**VERDICT:** REVISE: the sum is 12")[1] == "the sum is 12"


def test_verifier_text_is_the_verdict_word_then_its_diagnosis() -> None:
    done = process(Role.VERIFIER, Reply("<think>hm</think>Off by one.\nVERDICT: REVISE", Finish.STOP))
    assert (done.text, done.reasoning, done.verdict) == ("revise: Off by one.", "hm", Verdict.REVISE)


def test_worker_and_thinker_text_never_carries_a_verdict() -> None:
    for role in (Role.WORKER, Role.THINKER):
        assert process(role, Reply("VERDICT: ACCEPT", Finish.STOP)).verdict is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plan.\nNEXT: worker calendar: convert the days", Suggestion(Role.WORKER, "calendar", "convert the days")),
        ("Plan.\n**NEXT:** Verifier any: check it", Suggestion(Role.VERIFIER, None, "check it")),
        ("next: worker", Suggestion(Role.WORKER, None, None)),
        ("NEXT: worker gpt-5.1: go on\n\n", Suggestion(Role.WORKER, "gpt-5.1", "go on")),
        ("NEXT: chef any: cook", None),
        ("NEXT: worker a: x\nand more text", None),
        ("no line", None),
        ("", None),
    ],
)
def test_suggestions(text: str, expected: Suggestion | None) -> None:
    assert parse_suggestion(text) == expected
