"""Drawing runs without a server: the reducer, escaping, the lane, the plots, and the tables of traces."""

from __future__ import annotations

import html
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from storage.records import RunPage, RunQuery, RunSummary, StoredRun, StoredTurn
from trinity_core.agents.meter import Spent
from trinity_core.session.loading import CoordinatorStatus
from trinity_core.types import (
    AgentSpec,
    AnyRunEvent,
    Decision,
    Delta,
    Failure,
    Finish,
    Limits,
    Message,
    Mode,
    Note,
    Role,
    RunFinished,
    RunParams,
    RunStarted,
    Source,
    Status,
    StopReason,
    Suggestion,
    Totals,
    TurnFinished,
    TurnReset,
    TurnStarted,
    Usage,
    Verdict,
)
from ui import plots, render, trace
from ui.view import CallView, RunView

HOSTILE = (
    "<think>plan</think>\nfill <your name here> please",
    "Rent is $1800 and $250 for heat, while $x^2$ is a square.",
    "see [/INST] and [bold] in the prompt",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)> ![pixel](https://other.example/p.png)",
    '"><svg onload=alert(1)>',
    "&lt;b&gt; stays as typed &amp; so does this",
    "{{value}} ${value} <|im_end|>",
)


class _Page(HTMLParser):
    """What a browser would make of some markup: its elements, their attributes, and the visible text."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def by_test_id(self, name: str) -> dict[str, str | None]:
        return next(attrs for _, attrs in self.tags if attrs.get("data-testid") == name)


def assert_inert(markup: str) -> _Page:
    page = _Page(markup)
    for tag, attrs in page.tags:
        assert tag not in ("script", "img", "svg", "iframe", "object", "link", "style", "base", "form")
        assert not [name for name in attrs if name.startswith("on") or name in ("src", "href", "srcset")]
    return page


class Events:
    """Builds the events of one run."""

    def __init__(self) -> None:
        self.made: list[AnyRunEvent] = []

    def add(self, kind: Any, /, **fields: Any) -> Events:
        seq = len(self.made)
        self.made.append(kind(run_id="r", seq=seq, at=1000.0 + seq, **fields))
        return self

    def start(self, question: str = "Why?", **fields: Any) -> Events:
        given: dict[str, Any] = {
            "messages": (Message("user", question),), "method": "coordinator", "source": Source.UI,
            "params": RunParams(), "pool": (AgentSpec("a", "x"),), "seed": 0,
        }  # fmt: skip
        return self.add(RunStarted, **(given | fields))

    def call(self, turn: int, text: str, *, agent: str = "a", role: Role = Role.WORKER, **fields: Any) -> Events:
        attempt = fields.pop("attempt", 1)
        decision = fields.pop("decision", None)
        common = {"turn": turn, "attempt": attempt, "agent": agent, "role": role}
        self.add(TurnStarted, **common, decision=decision)
        self.add(Delta, turn=turn, attempt=attempt, text=text)
        return self.add(TurnFinished, **common, raw=text, text=text, **fields)

    def end(self, answer: str | None = None, status: Status = Status.DONE, **fields: Any) -> Events:
        reason = fields.pop("stop_reason", StopReason.ACCEPTED)
        return self.add(RunFinished, status=status, stop_reason=reason, answer=answer, **fields)

    @property
    def view(self) -> RunView:
        return RunView.of(self.made)


def decision(**fields: Any) -> Decision:
    given: dict[str, Any] = {
        "agent": "symbolic", "role": Role.WORKER, "own_agent": "symbolic", "own_role": Role.WORKER,
        "mode": Mode.ARGMAX,
        "agent_logits": {"smollm2": -1.0, "symbolic": 2.0, "lexical": 3.0},
        "role_logits": {"worker": 1.0, "thinker": 0.5, "verifier": 2.0},
        "agent_probs": {"smollm2": 0.05, "symbolic": 0.95, "lexical": 0.0},
        "role_probs": {"worker": 0.62, "thinker": 0.38, "verifier": 0.0},
        "margin": {"agent": 3.0, "role": 0.5},
        "masked": {"agent:lexical": "it failed before", "role:verifier": "there is no answer yet"},
    }  # fmt: skip
    return Decision(**(given | fields))


# --- The reducer ------------------------------------------------------------------------------------------


def test_events_given_twice_or_again_from_the_start_change_nothing() -> None:
    events = Events().start().call(1, "four").end("four")
    view = events.view
    before = (render.lane(view), render.conversation(view), view.version)
    view.extend(events.made)
    assert (render.lane(view), render.conversation(view), view.version) == before


def test_a_reset_voids_what_was_streamed() -> None:
    events = Events().start().add(TurnStarted, turn=1, attempt=1, agent="a", role=Role.WORKER)
    events.add(Delta, turn=1, attempt=1, text="bad").add(TurnReset, turn=1, attempt=1, reason="rate limit, again")
    events.add(Delta, turn=1, attempt=1, text="good")
    assert events.view.calls[0].text == "good"
    lane = render.lane(events.view)
    assert "bad" not in lane
    assert "rate limit, again" in lane


def test_reasoning_and_text_stay_apart_and_reasoning_is_folded() -> None:
    events = Events().start().add(TurnStarted, turn=1, attempt=1, agent="a", role=Role.WORKER)
    events.add(Delta, turn=1, attempt=1, text="hm", channel="reasoning").add(Delta, turn=1, attempt=1, text="four")
    call = events.view.calls[0]
    assert (call.reasoning, call.text) == ("hm", "four")
    page = _Page(render.lane(events.view))
    assert "open" not in next(attrs for tag, attrs in page.tags if tag == "details")


def test_the_next_question_continues_with_the_answer_but_not_with_an_unfinished_run() -> None:
    running = Events().start("Q").call(1, "partial")
    assert running.view.conversation() == (Message("user", "Q"),)
    assert running.end("A").view.conversation() == (Message("user", "Q"), Message("assistant", "A"))


@pytest.mark.parametrize(
    ("suggested", "followed"),
    [
        (None, None),
        (Suggestion(), None),
        (Suggestion(instruction="hurry"), None),
        (Suggestion(Role.WORKER), True),
        (Suggestion(Role.WORKER, "symbolic"), True),
        (Suggestion(Role.VERIFIER, "symbolic"), False),
        (Suggestion(agent="smollm2"), False),
    ],
)
def test_whether_a_suggestion_was_followed(suggested: Suggestion | None, followed: bool | None) -> None:
    view = Events().start().call(1, "x", agent="symbolic", decision=decision(suggested=suggested)).view
    assert view.calls[0].followed is followed
    assert ("Thinker’s suggestion" in render.lane(view)) is (followed is not None)


# --- Text stays text --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_is_visible_as_it_stands_and_does_nothing(text: str) -> None:
    view = (
        Events()
        .start(text)
        .call(1, text, reasoning=text, suggestion=Suggestion(Role.WORKER, text, text))
        .add(Note, kind=text, message=text, turn=1)
        .call(2, "", attempt=1, agent=text, error=Failure("transport", text))
        .end(text, error=Failure("internal", text))
        .view
    )
    for markup in (render.lane(view), render.conversation(view)):
        assert assert_inert(markup).text.count(text) >= 2
    assert_inert(render.status_line(view, time.time()))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_stored_trace_is_text_too(text: str) -> None:
    turn = StoredTurn(
        "t", 1, agent=text, role=Role.WORKER, finish=Finish.STOP, text=text, raw=text, reasoning=text,
        request={"messages": [{"role": text, "content": text}], "model": text}, request_id=text,
        decision=decision(agent=text, agent_logits={text: 1.0}, agent_probs={text: 1.0},
                          masked={f"agent:{text}": text}, suggested=Suggestion(None, text, text)),
        error=Failure(text, text),
    )  # fmt: skip
    run = StoredRun(
        text, messages=(Message("user", text), Message("assistant", text), Message("user", text)), answer=text,
        method=text, checkpoint_id=text, pool=(AgentSpec(text, text, options={text: text}),), turns=(turn,),
        flag=text, error=Failure(text, text), stop_reason=StopReason.FAILED,
    )  # fmt: skip
    for markup in (trace.detail(run), trace.detail(run, confirm=True)):
        assert assert_inert(markup).text.count(text) >= 10
    row = RunSummary(text, 1.0, text, "W", text, None, Status.DONE, None, text, Source.CLI, text, None, None, 1, 1.0,
                     3, None)  # fmt: skip
    page = assert_inert(trace.table(RunPage((row,), 1, 1, 50), RunQuery(), text))
    assert [attrs["data-id"] for tag, attrs in page.tags if tag == "tr" and "data-id" in attrs] == [text]
    assert_inert(trace.deleted(text) + trace.nothing(text))


def test_fenced_code_becomes_a_block_without_losing_a_character_of_it() -> None:
    markup = render.prose("Run:\n```python\nprint('<b>')\n```\nAnswer: <1>\nbye")
    assert "<pre><code>print(&#x27;&lt;b&gt;&#x27;)\n</code></pre>" in markup
    assert '<strong class="final">Answer: &lt;1&gt;</strong>' in markup
    assert _Page(markup).text == "Run:\nprint('<b>')\nAnswer: <1>\nbye"


def test_an_unclosed_fence_keeps_its_text() -> None:
    assert "rest <i>" in _Page(render.prose("```\nrest <i>")).text


# --- The lane ---------------------------------------------------------------------------------------------


def test_cards_carry_what_tests_and_styles_look_for() -> None:
    view = (
        Events()
        .start()
        .call(1, "", agent="b", error=Failure("empty", "no text"))
        .call(1, "4", attempt=2)
        .call(2, "accept: fine", agent="c", role=Role.VERIFIER, verdict=Verdict.ACCEPT)
        .end("4", answer_turn=1)
        .view
    )
    page = _Page(render.lane(view))
    failed, done, verified = (page.by_test_id(name) for name in ("turn-1-attempt-1", "turn-1", "turn-2"))
    assert (failed["data-status"], failed["data-agent"], failed["data-attempt"]) == ("failed", "b", "1")
    assert (done["data-status"], done["data-agent"], done["data-attempt"]) == ("done", "a", "2")
    assert (verified["data-role"], verified["data-verdict"]) == ("verifier", "accept")
    assert page.by_test_id("run-end")["data-stop-reason"] == "accepted"
    assert "✓ Accepted" in page.text
    assert "Verifier" in page.text, "the role is a word, not only a colour"


@pytest.mark.parametrize(
    ("verdict", "sign", "word"),
    [(Verdict.ACCEPT, "✓", "Accepted"), (Verdict.REVISE, "✗", "Revise"), (Verdict.NONE, "?", "No verdict")],
)
def test_a_verdict_is_a_sign_and_a_word(verdict: Verdict, sign: str, word: str) -> None:
    text = _Page(render.verdict_badge(verdict)).text
    assert sign in text
    assert word in text


@pytest.mark.parametrize(
    ("role", "verdict", "text", "shown"),
    [
        (Role.VERIFIER, Verdict.REVISE, "revise: Step 2: 7 * 12 is 84.", "Step 2: 7 * 12 is 84."),
        (Role.VERIFIER, Verdict.ACCEPT, "accept: Recomputed.", "Recomputed."),
        (Role.VERIFIER, Verdict.NONE, "none: I only do dates.", "I only do dates."),
        (Role.VERIFIER, Verdict.ACCEPT, "accept:", ""),
        (Role.VERIFIER, Verdict.ACCEPT, "revise: says another word", "revise: says another word"),
        (Role.VERIFIER, Verdict.REVISE, "reviser: a word of its own", "reviser: a word of its own"),
        (Role.VERIFIER, None, "revise: while it is written", "revise: while it is written"),
        (Role.WORKER, None, "accept: the offer", "accept: the offer"),
    ],
)
def test_a_verifiers_card_shows_the_diagnosis_beside_the_badge(
    role: Role, verdict: Verdict | None, text: str, shown: str
) -> None:
    call = CallView(1, 1, "a", role, status=Status.DONE, text=text, verdict=verdict)
    assert (f'<div class="prose" dir="auto">{shown}</div>' in render.card(call)) is bool(shown)
    assert ("prose" in render.card(call)) is bool(shown)
    assert call.text == text


def test_while_a_choice_is_made_the_lane_says_so() -> None:
    view = Events().start().view
    assert "Turn 1: the coordinator" in render.lane(view)
    assert "Turn 2: the coordinator" in render.lane(Events().start().call(1, "x").view)


def test_a_failed_run_names_member_turn_cause_and_next_step() -> None:
    error = Failure("auth", "The key was refused.")
    view = (
        Events()
        .start()
        .call(1, "", agent="gpt", error=error)
        .end(
            status=Status.FAILED,
            stop_reason=StopReason.FAILED,
            error=Failure("attempts", "3 members failed in turn 1."),
        )
        .view
    )
    text = _Page(render.conversation(view)).text
    for part in ("turn 1", "gpt", "3 members failed", "Check this member's key"):
        assert part in text


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("bad_request", "Correct this member in the Pool tab"),
        ("protocol", "Check this member's address"),
        ("resting", "Wait until it is called again"),
        ("budget", "Raise the budget"),
    ],
)
def test_a_cause_is_told_once_where_it_is_the_only_one(kind: str, step: str) -> None:
    why = "HTTP 404 from the server: no <such> model."
    message = f"gpt failed: {why} gpt as worker: {why}"
    events = Events().start().call(1, "", agent="gpt", error=Failure(kind, f"gpt: {why}"))
    events.add(Note, kind="masked", message=f"gpt failed and is left out of this run: {why}", turn=1)
    events.add(Note, kind="masked", message="b failed and is left out of this run: something else", turn=1)
    ends: dict[str, Any] = {"status": Status.FAILED, "stop_reason": StopReason.FAILED}
    view = events.end(error=Failure("NoAgentError", message), **ends).view
    text = _Page(render.conversation(view)).text
    assert text.count(why) == 1
    assert step in text
    lane = _Page(render.lane(view)).text
    assert lane.count(why) == 1
    assert "gpt failed and is left out of this run." in lane
    assert "b failed and is left out of this run: something else" in lane


def test_what_to_do_about_several_members_is_not_about_the_last() -> None:
    events = Events().start()
    for attempt, agent in enumerate(("a", "b"), 1):
        events.call(1, "", attempt=attempt, agent=agent, error=Failure("auth", f"{agent}: no"))
    ends: dict[str, Any] = {"status": Status.FAILED, "stop_reason": StopReason.FAILED}
    text = _Page(render.conversation(events.end(error=Failure("attempts", "All failed."), **ends).view)).text
    assert "enable more members" in text
    assert "this member" not in text


def test_a_failed_verifier_has_no_verdict() -> None:
    call = CallView(1, 1, "a", Role.VERIFIER, status=Status.FAILED, verdict=Verdict.NONE, error=Failure("auth", "no"))
    assert "No verdict" not in render.card(call)
    assert "No verdict" in render.card(CallView(1, 1, "a", Role.VERIFIER, status=Status.DONE, verdict=Verdict.NONE))


def test_stored_replies_are_counted_when_a_run_is_over() -> None:
    view = paid_run().end("x", totals=Totals(3, 2, cost=0.02)).view
    assert "1 stored reply" in _Page(render.status_line(view, now=1010.0)).text
    free = Events().start().call(1, "one").end("one", totals=Totals(1, 1)).view
    assert "stored" not in _Page(render.status_line(free, now=1010.0)).text


def test_a_stopped_run_keeps_its_partial_text() -> None:
    events = Events().start().add(TurnStarted, turn=1, attempt=1, agent="a", role=Role.WORKER)
    events.add(Delta, turn=1, attempt=1, text="so far so good")
    events.add(TurnFinished, turn=1, attempt=1, agent="a", role=Role.WORKER, text="so far so good",
               error=Failure("cancelled", "Stopped on request."))  # fmt: skip
    ends = {"stop_reason": StopReason.CANCELLED, "flag": "no_worker_turn"}
    view = events.end("only a plan", Status.CANCELLED, **ends).view
    assert "so far so good" in render.conversation(view)
    assert "only a plan" not in render.conversation(view)
    assert _Page(render.lane(view)).by_test_id("turn-1")["data-status"] == "cancelled"


def test_the_status_line_counts_on_from_the_start_and_tells_why_it_ended() -> None:
    running = _Page(render.status_line(Events().start().view, now=1007.5))
    assert running.by_test_id("run-state")["data-running"] == "1"
    assert "7.5 s" in running.text
    totals = Totals(2, 3, Usage(10, 20), 0.5, seconds=4.2)
    done = _Page(render.status_line(Events().start().end("x", totals=totals).view, now=9999.0))
    assert done.by_test_id("run-state")["data-status"] == "done"
    for part in ("accepted by a Verifier", "2 turns", "10 → 20 tokens", "$0.5000", "4.2 s"):
        assert part in done.text


@pytest.mark.parametrize(
    ("cost", "unpriced", "words"),
    [
        (None, 0, ""),
        (None, 1, "cost unknown"),
        (None, 7, "cost unknown"),
        (0.0123, 0, "$0.0123"),
        (0.0123, 1, "$0.0123 + 1 call of unknown cost"),
        (1234.5, 2, "$1,234.5000 + 2 calls of unknown cost"),
        (0.00001, 0, "under $0.0001"),
        (0.0, 0, "$0.00"),
        (0.0, 1, "$0.00 + 1 call of unknown cost"),
    ],
)
def test_money_in_words(cost: float | None, unpriced: int, words: str) -> None:
    assert render.money(cost, unpriced) == words


@pytest.mark.parametrize(
    ("spent", "limits", "words"),
    [
        (Spent(), Limits(), ""),
        (Spent(31, 500, 0.42, 4), Limits(cost=5.0), "Today: $0.42, 31 calls; 4 of unknown cost; limit $5.00"),
        (Spent(1, 10, 0.0042), Limits(), "Today: $0.0042, 1 call"),
        (Spent(2, 10, 0.0, 2), Limits(), "Today: 2 calls; all of unknown cost"),
        (Spent(2, 10, 0.0, 0), Limits(), "Today: $0.00, 2 calls"),
        (Spent(), Limits(calls=9), "Today: 0 calls; limit 9 calls"),
        (
            Spent(3, 2500, 1.5, 1),
            Limits(10, 9000, 2.0),
            "Today: $1.50, 3 calls, 2,500 tokens; 1 of unknown cost; limit 10 calls, 9,000 tokens, $2.00",
        ),
    ],
)
def test_the_day_in_words(spent: Spent, limits: Limits, words: str) -> None:
    assert _Page(render.day_total(spent, limits)).text == words


def paid_run() -> Events:
    """A turn that was paid for after an attempt of unknown cost, a stored reply, and an embedded agent's turn."""
    events = Events().start()
    events.call(1, "one", cost=0.0123, calls=2, unpriced=1)
    events.call(2, "two", cost=0.5, reused=True)
    return events.call(3, "three")


def test_cards_say_what_was_paid_and_what_was_not_asked_again() -> None:
    view = paid_run().view
    one, two, three = (_Page(render.card(call)).text for call in view.calls)
    assert "$0.0123 + 1 call of unknown cost" in one
    assert "from stored replies" in two
    assert "$" not in two
    assert not any(word in three for word in ("$", "cost", "stored"))


def test_the_total_is_shown_while_it_runs_and_when_it_is_over() -> None:
    running = paid_run()
    words = "$0.0123 + 1 call of unknown cost"
    assert words in _Page(render.status_line(running.view, now=1010.0)).text
    done = running.end("x", totals=Totals(3, 2, cost=0.02, unpriced=3)).view
    for markup in (render.status_line(done, now=1010.0), render.lane(done)):
        assert "$0.0200 + 3 calls of unknown cost" in _Page(markup).text
    free = Events().start().call(1, "one").end("one", totals=Totals(1, 1)).view
    for markup in (render.status_line(free, now=1010.0), render.lane(free), render.conversation(free)):
        assert "$" not in _Page(markup).text
        assert "cost" not in _Page(markup).text
    unknown = Events().start().end("x", totals=Totals(1, 1, unpriced=1)).view
    assert "cost unknown" in _Page(render.status_line(unknown, now=1010.0)).text


@pytest.mark.parametrize(
    ("status", "parts"),
    [
        (CoordinatorStatus("loading", "Converting <weights>", 0.4), ["loading", "Converting <weights>"]),
        (CoordinatorStatus("ready", "", 1.0, "SmolLM2", "abcdef0123456"), ["ready", "SmolLM2", "head abcdef0123"]),
        (CoordinatorStatus("untrained", "No head fits.", 1.0, "SmolLM2"), ["untrained", "No head fits."]),
        (CoordinatorStatus("failed", "No such model."), ["failed", "No such model."]),
    ],
)
def test_the_coordinator_line(status: CoordinatorStatus, parts: list[str]) -> None:
    page = assert_inert(render.coordinator_line(status))
    assert all(part in page.text for part in parts)
    assert [attrs["value"] for tag, attrs in page.tags if tag == "progress"] == (
        ["0.40"] if status.state == "loading" else []
    )


@pytest.mark.parametrize(
    ("value", "words"), [(None, ""), (0.0004, "0 ms"), (0.34, "340 ms"), (2.14, "2.1 s"), (185.2, "3 min 5 s")]
)
def test_durations_in_words(value: float | None, words: str) -> None:
    assert render.seconds(value) == words


# --- Plots ------------------------------------------------------------------------------------------------


def test_bars_are_sorted_and_mark_the_chosen_and_the_masked() -> None:
    figure = plots.bars(decision(), "agent")
    assert figure is not None
    bar = figure["data"][0]
    assert bar["x"] == [3.0, 2.0, -1.0]
    assert bar["orientation"] == "h"
    assert [("chosen" in text, "masked" in text) for text in bar["text"]] == [
        (False, True), (True, False), (False, False),
    ]  # fmt: skip
    assert [width > 0 for width in bar["marker"]["line"]["width"]] == [False, True, False]
    assert len(set(bar["marker"]["color"])) == 2, "the masked bar is grey"
    assert "it failed before" in bar["hovertext"][0]
    assert figure["caption"] == "symbolic leads smollm2 by 3.00; lexical masked: it failed before"


def test_the_runner_up_is_the_best_that_could_have_been_chosen() -> None:
    assert plots.caption(decision(), "role").startswith("worker leads thinker by 0.50;")


def test_a_draw_of_a_smaller_logit_does_not_read_as_a_lead() -> None:
    drawn = decision(agent="smollm2", own_agent="smollm2", mode=Mode.SAMPLE, margin={"agent": -3.0})
    assert plots.caption(drawn, "agent").startswith("smollm2 was drawn, although symbolic is ahead by 3.00;")


@pytest.mark.parametrize(
    ("masked", "mode", "says"),
    [
        ({}, Mode.SAMPLE, "The choice was uniform: a, b and c were equally likely, 33% each, and b was drawn"),
        ({}, Mode.ARGMAX, "The choice was uniform: a, b and c were equally likely, 33% each, and b was taken"),
        ({"agent:a": "it failed"}, Mode.SAMPLE,
         "The choice was uniform: b and c were equally likely, 50% each, and b was drawn; a masked: it failed"),
        ({"agent:a": "x", "agent:c": "y"}, Mode.SAMPLE, "Only b could be chosen; a masked: x; c masked: y"),
    ],
)  # fmt: skip
def test_equal_logits_are_told_in_words_instead_of_an_empty_axis(
    masked: dict[str, str], mode: Mode, says: str
) -> None:
    equal = decision(
        agent="b", own_agent="b", mode=mode, masked=masked, margin={"agent": 0.0},
        agent_logits=dict.fromkeys("abc", 0.0), agent_probs=dict.fromkeys("abc", 1 / 3),
    )  # fmt: skip
    call = plots.panel(Events().start().call(1, "x", agent="b", decision=equal).view, "agent")["calls"]["1.1"]
    assert (call["logits"], call["probs"], call["words"]) == (None, None, says)
    assert plots.bars(equal, "role") is not None, "the roles' logits differ"


def test_probabilities_replace_logits() -> None:
    figure = plots.bars(decision(), "role", "probs")
    assert figure is not None
    assert figure["data"][0]["x"] == [0.62, 0.38, 0.0]
    assert figure["data"][0]["text"][0] == "62% · chosen"


def test_a_followed_suggestion_shows_both_choices() -> None:
    figure = plots.bars(decision(agent="smollm2", margin={"agent": 3.0}), "agent")
    assert figure is not None
    assert [text.split(" · ")[1:] for text in figure["data"][0]["text"]] == [["masked"], ["own choice"], ["chosen"]]
    assert "suggestion smollm2 was followed instead of symbolic" in figure["caption"]


def test_a_choice_without_a_head_has_no_bars() -> None:
    plain = Decision("a", Role.WORKER, "a", Role.WORKER, Mode.FIXED)
    assert plots.bars(plain, "agent") is None
    view = Events().start().call(1, "x", decision=plain).view
    panel = plots.panel(view, "agent")
    call = panel["calls"]["1.1"]
    assert call["logits"] is None
    assert "without a head" in call["words"]
    assert "without a head" in plots.panel(Events().start().call(1, "x").view, "agent")["empty"]
    assert plots.heat(view)["figure"] is None


def test_names_cannot_put_markup_into_a_plot() -> None:
    name = "<a href='https://other.example'>x</a>"
    given = decision(agent=name, agent_logits={name: 1.0, "b": 0.0}, agent_probs={name: 0.7, "b": 0.3}, masked={})
    view = Events().start().call(1, "x", agent=name, decision=given).call(2, "x", agent=name, decision=given).view
    bars = plots.bars(given, "agent")
    assert bars is not None
    for label in (*bars["data"][0]["y"], *bars["data"][0]["hovertext"], *plots.heat(view)["figure"]["data"][0]["y"]):
        assert "<a" not in label
    assert html.escape(name) in bars["data"][0]["y"][0]


def test_the_heat_map_marks_the_chosen_cell_of_every_call() -> None:
    view = (
        Events()
        .start()
        .call(1, "", agent="symbolic", decision=decision(), error=Failure("empty", "e"))
        .call(1, "4", attempt=2, agent="smollm2", decision=decision(agent="smollm2"))
        .view
    )
    figure = plots.heat(view)["figure"]
    cells, marks = figure["data"]
    assert cells["x"] == ["T1", "T1·2"]
    assert cells["z"][cells["y"].index("symbolic")] == [0.95, 0.95]
    assert list(zip(marks["x"], marks["y"], strict=True)) == [("T1", "symbolic"), ("T1·2", "smollm2")]
    assert figure["keys"] == ["1.1", "1.2"]


def test_the_panel_holds_both_scales_of_every_call_and_shows_the_newest() -> None:
    view = Events().start().call(1, "x", decision=decision()).call(2, "y", decision=decision()).view
    panel = plots.panel(view, "role")
    assert list(panel["calls"]) == ["1.1", "2.1"]
    assert set(panel["calls"]["1.1"]) == {"title", "logits", "probs", "words"}
    assert panel["calls"]["1.1"]["words"] is None
    assert panel["latest"] == "2.1"


# --- Traces -----------------------------------------------------------------------------------------------


def test_the_table_marks_order_and_choice_and_counts_all() -> None:
    rows = tuple(
        RunSummary(f"id{n}", 1e9 + n, f"q{n}", "T·W·–", "a · b · a", Verdict.REVISE, Status.DONE,
                   StopReason.TURNS_EXHAUSTED, None, Source.UI, "coordinator", None, None, 3, 1.5, 1234, None)
        for n in range(2)
    )  # fmt: skip
    markup = trace.table(RunPage(rows, 1052, 2, 50), RunQuery(sort="question", descending=False, page=2), "id1")
    page = _Page(markup)
    lines = [attrs for tag, attrs in page.tags if tag == "tr" and "data-id" in attrs]
    assert [(line["data-id"], line["aria-selected"]) for line in lines] == [("id0", "false"), ("id1", "true")]
    sorts = [attrs["aria-sort"] for tag, attrs in page.tags if "aria-sort" in attrs]
    assert sorts == ["ascending"]
    assert "51–52 of 1,052" in page.text
    assert "1,234" in page.text
    assert "✗ Revise" in page.text
    assert "Done: all turns used" in page.text
    chips = [attrs["aria-label"] for tag, attrs in page.tags if tag == "i"]
    assert chips == ["Turn 1: Thinker by a", "Turn 2: Worker by b", "Turn 3: answer by a"] * 2
    cells = [attrs for tag, attrs in page.tags if tag == "td" and "tr-agents" in (attrs.get("class") or "")]
    assert [cell["title"] for cell in cells] == ["a · b · a"] * 2
    assert "a, b" in page.text, "each agent once"


@pytest.mark.parametrize(
    ("cost", "unpriced", "words"),
    [
        (None, 0, ""),
        (0.0123, 0, "$0.0123"),
        (0.0123, 1, "$0.0123 + 1 call of unknown cost"),
        (None, 2, "cost unknown"),
    ],
)
def test_the_table_says_what_a_run_cost(cost: float | None, unpriced: int, words: str) -> None:
    row = RunSummary("id", 1e9, "q", "W", "a", None, Status.DONE, StopReason.ACCEPTED, None, Source.UI, "random",
                     None, None, 1, 1.0, 10, cost, unpriced)  # fmt: skip
    markup = trace.table(RunPage((row,), 1, 1, 50), RunQuery(), None)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", markup)
    names = [key for key, _, _ in trace.COLUMNS]
    assert len(cells) == len(names)
    assert cells[names.index("cost")] == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cost": 0.5, "calls": 3, "unpriced": 1}, ["Calls3", "Cost$0.5000 + 1 call of unknown cost"]),
        ({"cost": None, "unpriced": 1}, ["Costcost unknown"]),
        ({"cost": 0.5, "reused": True, "calls": 0}, ["Costfrom stored replies"]),
        ({}, []),
    ],
)
def test_a_trace_says_what_each_call_cost(fields: dict[str, Any], words: list[str]) -> None:
    turn = StoredTurn("t", 1, agent="a", finish=Finish.STOP, **fields)
    text = _Page(trace.detail(StoredRun("r", turns=(turn,), totals=Totals(1, 1)))).text
    assert all(word in text for word in words)
    assert ("Cost" in text) == bool(words)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.CANCELLED, Status.FAILED, Status.INTERRUPTED])
def test_a_run_that_did_not_get_done_says_so_in_the_table(status: Status) -> None:
    row = RunSummary("id", 1e9, "q", "", "", None, status, StopReason.FAILED, None, Source.UI, "random", None, None,
                     0, None, None, None)  # fmt: skip
    text = _Page(trace.table(RunPage((row,), 1, 1, 50), RunQuery(), None)).text
    assert render.STATUS_WORDS[status] in text
    assert "Done" not in text


def test_a_deleted_trace_says_so_and_can_be_brought_back() -> None:
    run = StoredRun("run-1", messages=(Message("user", "Q <b>?"),), answer="SECRET", deleted_at=5.0)
    page = assert_inert(trace.detail(run))
    assert "“Q <b>?” was deleted" in page.text
    assert "SECRET" not in page.text
    assert page.by_test_id("trace-undo")["data-id"] == "run-1"


@pytest.mark.parametrize(
    ("query", "part"),
    [(RunQuery(owner="me"), "no traces of this browser yet"), (RunQuery(search="zebra"), "No trace matches")],
)
def test_an_empty_table_says_what_to_do(query: RunQuery, part: str) -> None:
    page = _Page(trace.table(RunPage((), 0, 1, 50), query, None))
    assert part in page.text
    assert any(tag == "button" for tag, _ in page.tags)


def test_a_trace_shows_all_that_is_stored() -> None:
    turn = StoredTurn(
        "t1", 2, 1, "symbolic", Role.WORKER, None, Finish.STOP, 5.0, 6.0, 1.25, 0.2, 0.0123, "req-9", "TEXT",
        "RAWTEXT", "REASONING",
        decision(mode=Mode.SAMPLE, draws=(0.25, 0.75), checkpoint_id="ckpt", encode_ms=212.0, tokens=80,
                 cached_tokens=64, suggested=Suggestion(Role.WORKER, "symbolic", "go")),
        {"messages": [{"role": "system", "content": "PROMPT"}], "max_tokens": 77}, None, Usage(10, 20, 5, 6),
        hidden=b"\0" * 8,
    )  # fmt: skip
    run = StoredRun(
        "run-1", method="coordinator", stop_reason=StopReason.TURNS_EXHAUSTED, messages=(Message("user", "Q?"),),
        answer="TEXT", answer_turn=2, params=RunParams(max_turns=4), pool=(AgentSpec("symbolic", "symbolic"),),
        seed=7, checkpoint_id="ckpt", transcript_version="lines-v1", prompt_version="roles-v1", turns=(turn,),
        totals=Totals(1, 1, Usage(10, 20), 0.0123, 2, 1.5, 212.0), parent_run_id="run-0", fork_turn=1,
    )  # fmt: skip
    text = re.sub(r"\s+", " ", _Page(trace.detail(run)).text)
    for part in (
        "run-1", "all turns used", "coordinator", "ckpt", "lines-v1", "roles-v1", "7", "run-0, turn 1", "RAWTEXT",
        "REASONING", "PROMPT", "77", "+3.000", "95.0%", "masked: it failed before", "go (followed)", "0.250000",
        "agent +3.000", "212 ms, 80 tokens, 64 cached", "10 → 20 tokens, 5 cached, 6 reasoning", "$0.0123", "req-9",
        "200 ms", '"max_turns": 4', "Hidden state: 4 numbers", "a draw",
    ):  # fmt: skip
        assert part in text, part
