"""The Tasks tab's handlers as plain functions over a real store: the list, the form, imports, families, labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import pytest

from storage.records import StoredRun, StoredTurn
from storage.store import Store
from storage.taskstore import THUMB
from trinity_core.errors import InputError
from trinity_core.tasks import graders
from trinity_core.tasks.builtin import FAMILIES, builtin_tasks
from trinity_core.tasks.task import Task, from_jsonl, split_of
from trinity_core.types import AgentSpec, Finish, Message, Role, Status, StopReason
from ui import tasklist
from ui.tabs.tasks import QUEUE, START, Handlers
from ui.tasklist import DOWN, FORM, PAGE, PARAMS, REFERENCE, UP, Query, answer_of, task_from_run

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
LISTED, FORMED = 7, 4 + len(FORM)


@dataclass
class Services:
    """What the tab is given by the page."""

    store: Store
    pool: tuple[AgentSpec, ...] = ()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'tasks.db'}")
    yield opened
    opened.close()


@pytest.fixture
def tab(store: Store) -> Handlers:
    return Handlers(Services(store))


def asked(user: str = "ann") -> gr.Request:
    return cast(gr.Request, SimpleNamespace(username=user, headers={}, query_params={}))


def pressed(act: str, target: str = "") -> gr.EventData:
    return cast(gr.EventData, SimpleNamespace(_data={"act": act, "id": target}))


def filled(**values: Any) -> list[Any]:
    form = dict(zip(FORM, tasklist.blank(), strict=True))
    assert values.keys() <= form.keys()
    return list((form | values).values())


def run(number: int, question: str = "", answer: str | None = None, **values: Any) -> StoredRun:
    text = f"Adding up.\nAnswer: {number}" if answer is None else answer
    turn = StoredTurn(f"t{number}", 1, agent="symbolic", role=Role.WORKER, finish=Finish.STOP, text=text, raw=text)
    return StoredRun(
        f"run-{number}", "user:ann", status=Status.DONE, stop_reason=StopReason.ACCEPTED,
        messages=(Message("user", question or f"question {number}?"),), answer=text, answer_turn=1, turns=(turn,),
        created_at=1_750_000_000.0 + number, **values,
    )  # fmt: skip


def _text(path: str) -> str:
    return Path(path).read_text("utf-8")


def tasks(store: Store, owner: str = "user:ann") -> list[Task]:
    return [stored.task for stored in store.tasks(owner)]


# --- The list -------------------------------------------------------------------------------------------------


async def test_pages_search_and_filters(store: Store, tab: Handlers) -> None:
    names = [f"number {i:03d}" + (" zebra" if i == 7 else "") for i in range(60)]
    made = [
        Task.make(name, str(i), grader="numeric", family="a" if i % 2 else "b", source="x.csv")
        for i, name in enumerate(names)
    ]
    store.add_tasks(made, owner="user:ann")
    out = await tab.refresh(asked(), START)
    assert out[3].count("<tr data-key") == PAGE
    assert "1–50 of 60" in out[3]
    assert (out[4].interactive, out[5].interactive) == (False, True)
    out = await tab.following(asked(), out[0])
    assert "51–60 of 60" in out[3]
    assert out[5].interactive is False
    out = await tab.following(asked(), out[0])
    assert out[0]["query"].page == 2, "a page past the end is the last one"
    out = await tab.find(asked(), out[0], "ZEBRA")
    assert out[3].count("<tr data-key") == 1
    out = await tab.act(asked(), pressed("clear"), out[0])
    assert "of 60" in out[3]
    out = await tab.act(asked(), pressed("filter", "family=a"), out[0])
    assert "of 30" in out[3]
    out = await tab.act(asked(), pressed("filter", "grader=exact"), out[0])
    assert "No task matches" in out[3]
    out = await tab.act(asked(), pressed("filter", "colour=red"), out[0])
    assert "No task matches" in out[3], "an unknown filter changes nothing"


async def test_the_list_says_which_can_train_and_why_not(store: Store, tab: Handlers) -> None:
    good, no_number = Task.make("q1", "5", grader="numeric"), Task.make("q2", "much", grader="numeric")
    unknown = Task.make("q3", "x", grader="nope")
    store.add_tasks([good, no_number, unknown], owner="user:ann")
    out = await tab.refresh(asked(), START)
    assert "which is no number" in out[3]
    assert good.id not in out[1]
    assert "<b>2</b> cannot train" in out[1]
    assert f"<b>1</b> {good.split}" in out[1]
    out = await tab.act(asked(), pressed("filter", "trains=no"), out[0])
    assert {no_number.id in out[3], unknown.id in out[3], good.id not in out[3]} == {True}


async def test_text_of_tasks_stays_text(store: Store, tab: Handlers) -> None:
    hostile = Task.make(HOSTILE, HOSTILE, family=HOSTILE, source=HOSTILE, tags=(HOSTILE,))
    store.add_tasks([hostile], owner="user:ann")
    out = await tab.refresh(asked(), START)
    opened = await tab.act(asked(), pressed("open", hostile.id), out[0])
    shown = "".join(part for part in (*out, *opened[: LISTED + 4]) if isinstance(part, str))
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "<img" not in shown


async def test_tasks_of_others_are_neither_seen_nor_changed(store: Store, tab: Handlers) -> None:
    theirs = Task.make("theirs", "1")
    store.add_tasks([theirs], owner="user:bob")
    out = await tab.refresh(asked(), START)
    assert "There are no tasks yet" in out[3]
    for act in ("open", "delete", "delete-yes"):
        out = await tab.act(asked(), pressed(act, theirs.id), START)
        assert "There is no such task here" in out[LISTED + FORMED]
    assert tasks(store, "user:bob") == [theirs]


async def test_deleting_asks_and_can_be_undone(store: Store, tab: Handlers) -> None:
    task = Task.make("q", "1", family="f")
    store.add_runs([run(1)])
    store.add_tasks([task], owner="user:ann", run_id="run-1")
    out = await tab.act(asked(), pressed("delete", task.id), START)
    assert "delete-yes" in out[LISTED + 1]
    assert tasks(store) == [task]
    out = await tab.act(asked(), pressed("delete-yes", task.id), out[0])
    assert tasks(store) == []
    out = await tab.act(asked(), pressed("undo", task.id), out[0])
    assert [(stored.task, stored.owner, stored.run_id) for stored in store.tasks("user:ann")] == [
        (task, "user:ann", "run-1")
    ]
    await tab.act(asked(), pressed("undo", task.id), out[0])
    assert len(tasks(store)) == 1


async def test_everybodys_tasks_can_be_deleted_and_come_back_as_everybodys(store: Store, tab: Handlers) -> None:
    task = Task.make("q", "1")
    store.add_tasks([task])
    out = await tab.act(asked(), pressed("delete-yes", task.id), START)
    assert tasks(store) == []
    await tab.act(asked(), pressed("undo", task.id), out[0])
    assert store.tasks("user:bob")[0].owner is None


async def test_families_are_added_once_and_removed(store: Store, tab: Handlers) -> None:
    await tab.act(asked(), pressed("family-add", "letters"), START)
    letters = [task for task in builtin_tasks() if task.family == "letters"]
    assert sorted(task.id for task in tasks(store)) == sorted(task.id for task in letters)
    out = await tab.act(asked(), pressed("family-add", "letters"), START)
    assert "there already" in out[LISTED + FORMED]
    await tab.act(asked(), pressed("family-add", "all"), START)
    assert len(tasks(store)) == len(builtin_tasks())
    own = Task.make("my own", "1", family="letters")
    store.add_tasks([own], owner="user:ann")
    for family in FAMILIES:
        await tab.act(asked(), pressed("family-remove", family), START)
    assert tasks(store) == [own]


async def test_the_export_holds_what_matches_and_reads_back(store: Store, tab: Handlers) -> None:
    made = [Task.make(f"q{i}", str(i), family="a" if i else "b") for i in range(3)]
    store.add_tasks(made, owner="user:ann")
    state = START | {"query": Query(family="a")}
    file = await tab.export(asked(), state)
    back = from_jsonl(_text(file.value["path"]))
    assert sorted(task.id for task in back) == sorted(task.id for task in made[1:])


# --- The form -------------------------------------------------------------------------------------------------


async def test_a_task_is_made_edited_and_not_made_twice(store: Store, tab: Handlers) -> None:
    values = filled(
        question=" What is 2+2? ", reference="4", grader="numeric", tolerance="1 %", family="sums", tags="a, b,a"
    )
    out = await tab.save(asked(), START, *values)
    task = tasks(store)[0]
    assert task == Task.make("What is 2+2?", "4", grader="numeric", family="sums", tags=("a", "b"), source="hand",
                             params={"tolerance": 0.01})  # fmt: skip
    assert f"in the {task.split} split" in out[LISTED + 2]
    again = await tab.save(asked(), START, *values)
    assert "there already" in again[LISTED + 2]
    out = await tab.save(asked(), out[0], *filled(question="What is 2+3?", reference="5", grader="numeric"))
    assert [(t.question, t.reference) for t in tasks(store)] == [("What is 2+3?", "5")], "the edited one is replaced"
    for wrong, message in (
        (filled(reference="4"), "Question"),
        (filled(question="q"), "Reference"),
        (filled(question="q", reference="4", grader="numeric", tolerance="lots"), "tolerance"),
        (filled(question="q", reference="A", grader="choice", choices="only one"), "Options"),
        (filled(question="q", reference="x", grader="code", tests="[1,"), "Tests"),
    ):
        out = await tab.save(asked(), START, *wrong)
        assert message in out[LISTED + 2]
        assert len(tasks(store)) == 1


async def test_what_was_typed_is_put_aside_when_another_task_is_opened(store: Store, tab: Handlers) -> None:
    task = Task.make("q", "1")
    store.add_tasks([task], owner="user:ann")
    typed = filled(question="half a", grader="numeric")
    out = await tab.act(asked(), pressed("open", task.id), START, *typed)
    assert 'data-act="draft"' in out[LISTED + FORMED]
    assert out[LISTED + 4] == "q"
    back = await tab.act(asked(), pressed("draft"), out[0], *tasklist.values_of(task))
    assert back[LISTED + 4 : LISTED + FORMED] == typed
    assert back[0]["open"] is None
    out = await tab.act(asked(), pressed("open", task.id), START, *tasklist.blank())
    assert out[LISTED + FORMED] == "", "nothing was typed"


@pytest.mark.parametrize(
    "task",
    [
        *[next(t for t in builtin_tasks() if t.family == family) for family in FAMILIES],
        Task.make(" blanks \n", " x ", params={"case": True, "accept": ["y"], "own": 1}),
        Task.make("q", "B", grader="choice", params={"choices": ["red", "blue"]}),
        Task.make("q", "def f", grader="code", params={"tests": ["assert f() == 1"], "entry": "f", "seconds": 3}),
        Task.make("q", "^a", grader="regex", params={"flags": "i", "where": "reply", "full": True}),
        Task.make("q", "a", grader="judge", params={"judge": "gpt", "rubric": "kind"}),
        Task.make("q", "a", grader="human", params={"wrong": ["b"]}, split="test"),
        Task.make("q", "1", grader="nope", params={"x": 1}),
    ],
)  # fmt: skip
def test_the_form_gives_back_the_task_it_shows(task: Task) -> None:
    assert tasklist.task_of(tasklist.values_of(task), task) == task


def test_settings_that_the_grader_does_not_have_are_not_kept() -> None:
    old = Task.make("q", "a", grader="human", params={"wrong": ["b"], "accept": ["c"]})
    values = dict(zip(FORM, tasklist.values_of(old), strict=True)) | {"grader": "numeric", "reference": "1"}
    assert tasklist.task_of(list(values.values()), old).params == {}


def test_every_grader_is_explained_and_its_settings_have_fields() -> None:
    assert {name for _, name in tasklist.grader_choices()} == set(graders.GRADERS) == set(tasklist.GRADERS)
    for name in graders.GRADERS:
        assert tasklist.grader_note(name)
        assert set(tasklist.shown_params(name)) <= set(PARAMS)


async def test_a_reply_is_graded_in_words_before_saving(store: Store, tab: Handlers) -> None:
    values = filled(question="q", reference="42", grader="numeric")
    assert "✓ Right" in await tab.try_it(asked(), START, "So it is.\nAnswer: 42", *values)
    wrong = await tab.try_it(asked(), START, "Answer: 41", *values)
    assert "✗ Wrong" in wrong
    assert "does not equal 42" in wrong
    assert "Paste a reply" in await tab.try_it(asked(), START, " ", *values)
    assert "no number" in await tab.try_it(
        asked(), START, "5", *filled(question="q", reference="x", grader="numeric")
    )
    nobody = await tab.try_it(asked(), START, "5", *filled(question="q", reference="x", grader="human"))
    assert "Not graded" in nobody
    assert "judge" in await tab.try_it(asked(), START, "5", *filled(question="q", reference="x", grader="judge"))
    assert tasks(store) == []


# --- Import ---------------------------------------------------------------------------------------------------


async def test_a_file_is_previewed_mapped_and_imported_once(store: Store, tab: Handlers, tmp_path: Path) -> None:
    path = tmp_path / "my <b>file.csv"
    path.write_text("frage,answer\nWhat is 1+1?,2\n,3\nCapital of Peru?,Lima\nCapital of Peru?,Lima\n", "utf-8")
    file, preview, _, go = await tab.look(str(path))
    assert "What is 1+1?" in preview
    assert "<b>file" not in preview
    assert go["visible"] is True
    out = await tab.take(asked(), START, file, "")
    assert "Say which column holds the question" in out[-1]
    file, preview = await tab.map_column(pressed("filter", "question=frage"), file)
    out = await tab.take(asked(), START, file, "")
    assert "<b>2</b> new tasks" in out[-1]
    assert "Line 3:" in out[-1]
    assert "1 repeated" in out[-1]
    assert sorted((t.question, t.reference, t.grader) for t in tasks(store)) == [
        ("Capital of Peru?", "Lima", "exact"),
        ("What is 1+1?", "2", "numeric"),
    ]
    out = await tab.take(asked(), START, file, "")
    assert "<b>0</b> new tasks" in out[-1]
    assert "2 were there already" in out[-1]
    assert len(tasks(store)) == 2
    path.write_bytes(b"\xff\xfeq")
    assert "UTF-16" in (await tab.look(str(path)))[2]
    assert (await tab.look(None))[0] is None


async def test_a_wrong_file_that_was_imported_by_someone_else_stays_theirs(store: Store, tab: Handlers) -> None:
    task = Task.make("q", "1")
    store.add_tasks([task], owner="user:bob")
    tab.desk.add("user:ann", [task])
    tab.desk.delete("user:ann", task.id)
    assert tasks(store, "user:bob") == [task]


# --- From a run to a task -------------------------------------------------------------------------------------


def test_a_run_becomes_a_task_with_the_grader_of_its_answer() -> None:
    assert answer_of(run(42)) == "42"
    task = task_from_run(run(42), "42")
    assert (task.grader, task.source, task.split) == ("numeric", "trace", split_of(task.id))
    assert task_from_run(run(1), "Lima").grader == "exact"
    colours = run(1, "Which?\nA) red\nB) blue", "Answer: B")
    assert answer_of(colours) == "B"
    task = task_from_run(colours, "B")
    assert (task.grader, task.params) == ("choice", {"choices": {"A": "red", "B": "blue"}})
    assert task_from_run(run(1), "42", grader="contains").grader == "contains"
    with pytest.raises(InputError):
        task_from_run(run(1), " ")


def test_a_follow_up_question_takes_what_was_said_before_along() -> None:
    talk = (Message("user", "Capital of Peru?"), Message("assistant", "Lima"), Message("user", "And of Chile?"))
    task = task_from_run(StoredRun("r", messages=talk), "Santiago")
    assert task.question == "User: Capital of Peru?\n\nAssistant: Lima\n\nUser: And of Chile?"


# --- The labelling queue --------------------------------------------------------------------------------------


async def opened(tab: Handlers) -> dict[str, Any]:
    queue: dict[str, Any] = (await tab.queue(asked(), QUEUE))[0]
    return queue


def labels(store: Store, number: int) -> dict[str, str]:
    return {label.kind: label.value for label in store.labels_of(f"run-{number}")}


async def test_right_makes_a_task_and_shows_the_next(store: Store, tab: Handlers) -> None:
    store.add_runs([run(i) for i in range(3)])
    queue, card, reference, grader, _ = await tab.queue(asked(), QUEUE)
    assert (queue["id"], reference, grader) == ("run-2", "2", "numeric")
    assert "1 of 3" in card
    out = await tab.judge(asked(), pressed("right", "run-2"), queue, reference, grader)
    assert labels(store, 2) == {THUMB: UP, REFERENCE: "2"}
    stored = store.tasks("user:ann")[0]
    assert (stored.task.question, stored.task.reference, stored.run_id) == ("question 2?", "2", "run-2")
    assert out[0]["id"] == "run-1"
    assert "1 labelled" in out[1]
    assert "2 of 3" in out[1]
    again = await tab.judge(asked(), pressed("right", "run-2"), out[0], "9", grader)
    assert all(isinstance(part, dict) for part in again), "a press on a run that is not shown changes nothing"
    assert len(tasks(store)) == 1


async def test_wrong_keeps_the_run_and_asks_for_the_right_answer(store: Store, tab: Handlers) -> None:
    store.add_runs([run(i) for i in range(2)])
    queue = await opened(tab)
    out = await tab.judge(asked(), pressed("wrong", "run-1"), queue, "1", "numeric")
    assert labels(store, 1) == {THUMB: DOWN}
    assert out[0]["id"] == "run-1", "it waits for the right answer"
    assert tasks(store) == []
    refused = await tab.right(asked(), out[0], "1", "numeric")
    assert "You marked this answer wrong" in refused[4]
    assert tasks(store) == []
    empty = await tab.right(asked(), out[0], " ", "numeric")
    assert "empty" in empty[4]
    out = await tab.right(asked(), out[0], "7", "human")
    assert labels(store, 1) == {THUMB: DOWN, REFERENCE: "7"}
    task = tasks(store)[0]
    assert (task.reference, task.grader, task.params) == ("7", "human", {"wrong": ["Adding up.\nAnswer: 1"]})
    assert out[0]["id"] == "run-0"


async def test_another_thumb_takes_the_earlier_task_back(store: Store, tab: Handlers) -> None:
    store.add_runs([run(1)])
    queue = await opened(tab)
    out = await tab.judge(asked(), pressed("right", "run-1"), queue, "1", "numeric")
    assert len(tasks(store)) == 1
    assert "All labelled" in out[1]
    queue = out[0] | {"id": "run-1"}
    await tab.judge(asked(), pressed("wrong", "run-1"), queue, "1", "numeric")
    assert tasks(store) == [], "an answer marked wrong is no reference"
    await tab.right(asked(), queue, "3", "numeric")
    await tab.right(asked(), queue, "4", "numeric")
    assert [task.reference for task in tasks(store)] == ["4"]


async def test_the_queue_holds_what_lacks_a_thumb_or_a_right_answer(store: Store, tab: Handlers) -> None:

    store.add_runs(
        [*(run(i) for i in range(5)), replace(run(5), owner="user:bob"), replace(run(6), status=Status.FAILED)]
    )
    store.set_label("run-0", THUMB, UP, owner="user:ann")
    store.set_label("run-1", THUMB, DOWN, owner="user:ann")
    store.set_label("run-2", THUMB, DOWN, owner="user:ann")
    store.set_label("run-2", REFERENCE, "x", owner="user:ann")
    store.delete_runs(["run-3"], "user:ann")
    queue = await opened(tab)
    assert queue["ids"] == ("run-4", "run-1")
    out = await tab.judge(asked(), pressed("next", "run-4"), queue, "", None)
    assert out[0]["id"] == "run-1"
    out = await tab.judge(asked(), pressed("next", "run-1"), out[0], "", None)
    assert out[0]["id"] == "run-1"
    out = await tab.judge(asked(), pressed("previous", "run-1"), out[0], "", None)
    assert out[0]["id"] == "run-4"
    store.add_runs([run(9)])
    fresh = (await tab.queue(asked(), out[0]))[0]
    assert (fresh["id"], fresh["ids"]) == ("run-4", ("run-4", "run-1", "run-9"))


async def test_an_empty_queue_says_what_to_do(tab: Handlers) -> None:
    queue, card, *_ = await tab.queue(asked(), QUEUE)
    assert queue["id"] is None
    assert 'data-tab="tab-run"' in card
    assert "no answer to label" in (await tab.right(asked(), queue, "x", "exact"))[4]


async def test_an_answer_stays_text_and_json(store: Store, tab: Handlers) -> None:
    store.add_runs([run(1, HOSTILE, HOSTILE)])
    _, card, *_ = await tab.queue(asked(), QUEUE)
    assert "<script" not in card
    assert "<img" not in card
    assert json.dumps(card)
