"""What the Tasks tab shows and does, without gradio: the list, the form's values, the labelling queue, their HTML.

Every text of a task or a run may come from anywhere and is escaped. `Desk` is the one place that asks the store:
owners see their own tasks and everybody's. Not covered: events and components (`ui.tabs.tasks`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from storage.records import Label, RunQuery, StoredRun, StoredTask
from storage.taskstore import THUMB
from trinity_core.answers import AnswerKind, committed_answer, extract_answer, short_value
from trinity_core.errors import InputError
from trinity_core.tasks import graders
from trinity_core.tasks.builtin import FAMILIES, builtin_tasks
from trinity_core.tasks.builtin import SOURCE as BUILTIN
from trinity_core.tasks.importing import Columns, Imported, guess_grader, options_in, tolerance_of
from trinity_core.tasks.task import SHARES, Task, split_of
from trinity_core.types import Status
from ui.render import ROLE_WORDS, esc, prose, role_badge

if TYPE_CHECKING:
    from storage.store import Store

PAGE = 50
"""Tasks on one page of the list."""
QUEUE_MOST = 500
"""Runs that the labelling queue holds at a time, newest first."""
FROM_TRACE, BY_HAND = "trace", "hand"
SPLITS = tuple(name for name, _ in SHARES)
REFERENCE, UP, DOWN = "reference", "up", "down"
_QUESTION_CHARS = 80
_ERRORS_SHOWN = 50

GRADERS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "exact": (
        "Exact",
        "Right when the answer equals the reference as a number, a date or text. Other words in the reply do not "
        "count, and upper and lower case are the same unless you tick that they differ.",
        ("accept", "case"),
    ),
    "contains": (
        "Contains",
        "Right when the reference, or one of the other accepted answers, stands in the reply as whole words and is "
        "not rejected there.",
        ("accept",),
    ),
    "numeric": (
        "Number",
        "Right when the number in the reply is the reference within the tolerance. Units are read over.",
        ("tolerance",),
    ),
    "choice": (
        "Multiple choice",
        "Right when the reply settles on one option, by its letter or its text, and it is the reference's.",
        ("choices",),
    ),
    "regex": (
        "Pattern",
        "The reference is a regular expression. Right when the answer matches it; a pattern that takes too long is "
        "stopped.",
        ("flags", "where"),
    ),
    "math": (
        "Formula",
        "Right when the answer is the same mathematical value as the reference, however it is written.",
        (),
    ),
    "code": (
        "Code with tests",
        "The reply's code is run in a sandbox against these tests. Right only when every test ran and passed.",
        ("tests", "entry"),
    ),
    "human": (
        "A person",
        "A person says whether a reply is right. Answers that nobody has labelled cannot be scored, so such a task "
        "is kept but cannot train.",
        ("accept",),
    ),
    "judge": (
        "Judge model",
        "A member of the pool compares the reply with the reference. It may err, and each grade is a call.",
        ("judge", "rubric"),
    ),
}
"""Each grader's name for people, a sentence on what it does, and its settings in the form."""

PARAMS = ("choices", "tolerance", "accept", "case", "flags", "where", "tests", "entry", "judge", "rubric")
"""The settings that the form has fields for, in order. Other settings of an edited task are kept."""
FORM = ("question", "reference", "grader", "family", "tags", *PARAMS)
"""The form's fields in order."""


@dataclass(frozen=True, slots=True)
class Query:
    """What to list. An empty text does not filter; `trains` is "yes" or "no"."""

    search: str = ""
    family: str = ""
    split: str = ""
    grader: str = ""
    source: str = ""
    trains: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class Page:
    """`total` counts all tasks that match, `known` all there are."""

    rows: tuple[StoredTask, ...]
    total: int
    page: int
    known: int

    @property
    def last(self) -> int:
        return max(1, -(-self.total // PAGE))


def trouble(task: Task) -> str | None:
    """Why `task` cannot train, without the task's id, or None when it can."""
    why = graders.trouble(task)
    if why is None:
        return None
    why = re.sub(rf"^Task {task.id}:? ?", "", why).replace(f"task {task.id}", "the task")
    return why[:1].upper() + why[1:]


def _kind_of(why: str) -> str:
    """A reason without what it quotes, so that tasks with the same trouble are counted together."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|“[^”]*”", "…", why)


def grader_choices() -> list[tuple[str, str]]:
    """(word, name) of every grader there is, in the form's order."""
    known = [name for name in GRADERS if name in graders.GRADERS]
    known += sorted(graders.GRADERS.keys() - GRADERS.keys())
    return [(GRADERS[name][0] if name in GRADERS else name, name) for name in known]


def grader_word(name: str) -> str:
    return GRADERS[name][0] if name in GRADERS else name


# --- The store --------------------------------------------------------------------------------------------------


class Desk:
    """Tasks and labels of one owner at a time. Methods block; they raise InputError and StoreError."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def tasks(self, owner: str) -> tuple[StoredTask, ...]:
        """One's own tasks and everybody's; of a task that is both, one's own. Newest first."""
        found: dict[str, StoredTask] = {}
        for stored in self.store.tasks(owner):
            if stored.task.id not in found or stored.owner is not None:
                found[stored.task.id] = stored
        return tuple(sorted(found.values(), key=lambda stored: -stored.created_at))

    def page(self, owner: str, query: Query) -> Page:
        """A page of the list; a page past the end becomes the last one."""
        known = self.tasks(owner)
        found = [stored for stored in known if _matches(stored.task, query)]
        last = max(1, -(-len(found) // PAGE))
        number = min(max(1, query.page), last)
        return Page(tuple(found[(number - 1) * PAGE : number * PAGE]), len(found), number, len(known))

    def matching(self, owner: str, query: Query) -> tuple[Task, ...]:
        """All tasks that match, for the export, oldest first."""
        return tuple(stored.task for stored in reversed(self.tasks(owner)) if _matches(stored.task, query))

    def task(self, owner: str, task_id: str) -> StoredTask | None:
        return self.store.task(task_id, owner)

    def add(self, owner: str, new: Sequence[Task], run_id: str | None = None) -> int:
        """Store tasks that the owner does not see yet; return how many were new."""
        there = {stored.task.id for stored in self.tasks(owner)}
        fresh = [task for task in new if task.id not in there]
        return self.store.add_tasks(fresh, owner=owner, run_id=run_id) if fresh else 0

    def change(self, owner: str, old: StoredTask, task: Task) -> None:
        """Put `task` in the place of `old`, both or neither."""
        self.store.replace_task(old.task.id, task, old.owner)

    def delete(self, owner: str, task_id: str) -> StoredTask:
        """Delete a task and return it for `restore`."""
        stored = self.task(owner, task_id)
        if stored is None:
            raise InputError("There is no such task here. It was deleted, or it belongs to another browser.")
        self.store.delete_tasks([task_id], stored.owner)
        return stored

    def restore(self, stored: StoredTask) -> None:
        self.store.add_stored_tasks([stored])

    def add_family(self, owner: str, family: str) -> int:
        """Add the built-in tasks of a family, or of all ("all"); return how many are new."""
        return self.add(owner, [task for task in builtin_tasks() if family in ("all", task.family)])

    def remove_family(self, owner: str, family: str) -> int:
        """Delete the built-in tasks of a family; return how many there were."""
        ids = {task.id for task in builtin_tasks() if task.family == family}
        here = [stored for stored in self.store.tasks(owner) if stored.task.id in ids]
        return sum(self.store.delete_tasks([stored.task.id], stored.owner) for stored in here)

    # --- Labelling

    def queue(self, owner: str) -> tuple[str, ...]:
        """Finished runs to label, newest first: without a thumb, then those thumbed down without a right answer."""
        query = RunQuery(owner=owner, status=Status.DONE, page_size=QUEUE_MOST)
        fresh = self.store.list_runs(replace(query, label=THUMB, unlabelled=True)).rows
        judged = self.store.list_runs(replace(query, label=THUMB)).rows
        down = [row for row in judged if row.labels.get(THUMB) == DOWN and not row.labels.get(REFERENCE)]
        return tuple(row.id for row in (*fresh, *down))[:QUEUE_MOST]

    def run(self, owner: str, run_id: str) -> StoredRun | None:
        found = self.store.run(run_id, owner)
        return None if found is None or found.deleted_at is not None else found

    def judge(self, owner: str, run: StoredRun, thumb: str) -> None:
        """Save a thumb. A task that an earlier thumb up made of the run goes, and so does that reference."""
        self.store.set_label(run.id, THUMB, thumb, labeller=owner, owner=owner)
        self.store.set_label(run.id, REFERENCE, None, labeller=owner, owner=owner)
        self._drop_tasks_of(owner, run.id)

    def answer(self, owner: str, run: StoredRun, task: Task) -> bool:
        """Save the right answer of a run as a label and as a task; return whether the task is new."""
        self.store.set_label(run.id, REFERENCE, task.reference, labeller=owner, owner=owner)
        self._drop_tasks_of(owner, run.id, keep=task.id)
        return self.add(owner, [task], run.id) > 0

    def _drop_tasks_of(self, owner: str, run_id: str, keep: str = "") -> None:
        for stored in self.store.tasks(owner):
            if stored.run_id == run_id and stored.owner == owner and stored.task.id != keep:
                self.store.delete_tasks([stored.task.id], owner)


def _matches(task: Task, query: Query) -> bool:
    term = query.search.strip().casefold()
    return (
        (not query.family or task.family == query.family.removeprefix("="))
        and query.split in ("", task.split)
        and query.grader in ("", task.grader)
        and query.source in ("", task.source)
        and (not term or any(term in text.casefold() for text in (task.question, task.reference, *task.tags)))
        and (not query.trains or (query.trains == "yes") == (trouble(task) is None))
    )


# --- From a run to a task -----------------------------------------------------------------------------------------


def question_of(run: StoredRun) -> str:
    """The question as a task asks it: with what was said before, when it is a follow-up."""
    said = [message for message in run.messages if message.content.strip()]
    if len(said) < 2:
        return run.question
    return "\n\n".join(f"{message.role.capitalize()}: {message.content}" for message in said)


def answer_of(run: StoredRun) -> str:
    """The value that a run's answer commits to, or its whole text."""
    text = (run.answer or "").strip()
    options = options_in(run.question)
    if options:
        picked = extract_answer(text, AnswerKind.CHOICE, letters="".join(options), options=options)
        if picked:
            return picked
    return committed_answer(text) or short_value(text) or text


def _own(label: Label, kind: str, owner: str) -> bool:
    return label.kind == kind and label.turn_id is None and label.labeller in (owner, "")


def thumb_of(run: StoredRun, owner: str) -> str | None:
    """The owner's thumb on a run, "up" or "down"."""
    return next((label.value for label in reversed(run.labels) if _own(label, THUMB, owner)), None)


def right_answer(run: StoredRun, owner: str) -> str:
    """The right answer as far as it is known: the one that was typed, else the run's own; empty for a wrong one."""
    typed = next((label.value for label in reversed(run.labels) if _own(label, REFERENCE, owner)), None)
    return typed or ("" if thumb_of(run, owner) == DOWN else answer_of(run))


def grader_of(run: StoredRun, answer: str) -> str:
    """The grader that fits the form of `answer` to the run's question."""
    options = options_in(run.question)
    named = {*options, *(text.casefold() for text in options.values())}
    return guess_grader(answer, options if answer.strip() in options or answer.strip().casefold() in named else None)


def task_from_run(run: StoredRun, answer: str, *, grader: str = "") -> Task:
    """The task that a run's question becomes once `answer` is known to be right.

    `grader` empty chooses by the answer's form. The options of a multiple choice are read from the question. With
    grader "human" a run's own answer that was marked wrong (its thumb is down) is kept in `params["wrong"]`. Raises
    InputError when the question or the answer is empty.
    """
    answer = answer.strip()
    chosen = grader or grader_of(run, answer)
    params: dict[str, Any] = {}
    if chosen == "choice" and (options := options_in(run.question)):
        params["choices"] = options
    thumb = [label.value for label in run.labels if label.kind == THUMB and label.turn_id is None]
    if chosen == "human" and thumb[-1:] == [DOWN] and run.answer:
        params["wrong"] = [run.answer]
    return Task.make(question_of(run), answer, grader=chosen, source=FROM_TRACE, params=params)


# --- The form -----------------------------------------------------------------------------------------------------


def blank() -> list[Any]:
    return values_of(None)


def values_of(task: Task | None) -> list[Any]:
    """The form's values for `task`, in the order of `FORM`."""
    if task is None:
        return ["", "", "exact", "", "", "", "", "", False, "", False, "", "", None, ""]
    params = task.params
    options = graders.choices(task)
    tolerance, tests, accept = params.get("tolerance"), params.get("tests") or "", params.get("accept", ())
    return [
        task.question,
        task.reference,
        task.grader,
        task.family,
        ", ".join(task.tags),
        "\n".join(f"{letter}) {text}" for letter, text in options.items()),
        "" if tolerance is None else f"{tolerance:g}" if isinstance(tolerance, int | float) else str(tolerance),
        accept if isinstance(accept, str) else "\n".join(map(str, accept)),
        bool(params.get("case")),
        str(params.get("flags") or ""),
        params.get("where") == "reply",
        tests if isinstance(tests, str) else json.dumps(tests, ensure_ascii=False, indent=1),
        str(params.get("entry") or ""),
        params.get("judge"),
        str(params.get("rubric") or ""),
    ]


def task_of(values: Sequence[Any], old: Task | None = None) -> Task:
    """The task of the form's values. `old` is the task that is edited: settings without a field stay, and a split
    that came with it stays too. Raises InputError naming the field."""
    form = dict(zip(FORM, values, strict=True))
    question, reference = str(form["question"] or "").strip(), str(form["reference"] or "").strip()
    if old is not None:  # blanks at the ends are part of a task's content; only typing changes it
        question = old.question if question == old.question.strip() else question
        reference = old.reference if reference == old.reference.strip() else reference
    if not question.strip():
        raise InputError("Question: type what is to be asked.")
    if not reference.strip():
        raise InputError("Reference: type the right answer.")
    grader = str(form["grader"] or "exact")
    if grader not in graders.GRADERS and (old is None or grader != old.grader):
        raise InputError(f"There is no grader {grader!r}.")
    shown = GRADERS[grader][2] if grader in GRADERS else ()
    params = _settings(form, question, shown)
    if old is not None and old.grader == grader:
        params |= {name: value for name, value in old.params.items() if name not in PARAMS}
        if values_of(old)[len(FORM) - len(PARAMS) :] == list(values)[len(FORM) - len(PARAMS) :]:
            params = dict(old.params)  # nothing was typed: settings stay as they were written
    given = old.split if old is not None and old.split != split_of(old.id) else None
    return Task.make(
        question,
        reference,
        grader=grader,
        family=str(form["family"] or "").strip(),
        tags=tuple(dict.fromkeys(tag.strip() for tag in str(form["tags"] or "").split(",") if tag.strip())),
        source=old.source if old else BY_HAND,
        params=params,
        split=given,
    )


def _settings(form: Mapping[str, Any], question: str, shown: Sequence[str]) -> dict[str, Any]:
    """The grader's settings from the fields that are shown for it."""
    texts = {name: str(form[name] or "").strip() for name in PARAMS}
    params: dict[str, Any] = {}
    if "choices" in shown and (options := _options(texts["choices"]) or options_in(question)):
        params["choices"] = options
    if "tolerance" in shown and texts["tolerance"]:
        params["tolerance"] = tolerance_of(texts["tolerance"])
    accept = [line.strip() for line in texts["accept"].splitlines() if line.strip()]
    if "accept" in shown and accept:
        params["accept"] = accept
    if "case" in shown and form["case"]:
        params["case"] = True
    if "where" in shown and form["where"]:
        params["where"] = "reply"
    if "tests" in shown and texts["tests"]:
        params["tests"] = _tests(texts["tests"])
    params |= {name: texts[name] for name in ("flags", "entry", "judge", "rubric") if name in shown and texts[name]}
    return params


def _tests(text: str) -> Any:
    """Tests as Python source, or the list that a JSON text holds."""
    if not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"Tests: they begin like a JSON list but are none ({error}).") from None


def _options(text: str) -> dict[str, str]:
    """Options one a line, with or without letters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return {}
    if (lettered := options_in("\n".join(lines))) and len(lettered) == len(lines):
        return lettered
    if not 2 <= len(lines) <= 26:
        raise InputError("Options: write 2 to 26 of them, one a line.")
    return {chr(ord("A") + index): line for index, line in enumerate(lines)}


def shown_params(grader: str) -> tuple[str, ...]:
    """The settings that the form shows for a grader."""
    return GRADERS[grader][2] if grader in GRADERS else ()


def grader_note(grader: str) -> str:
    words = GRADERS[grader][1] if grader in GRADERS else ""
    return f'<p class="tr-aside">{esc(words)}</p>' if words else ""


# --- HTML: the list -----------------------------------------------------------------------------------------------


def table(page: Page, query: Query, selected: str | None) -> str:
    """A page of tasks; a row opens its task in the form."""
    if not page.known:
        return (
            '<div class="tr-empty tr-lane-empty"><p>There are no tasks yet. A task is a question with its right '
            "answer; training compares coordinators on them.</p><p class='tr-links'>"
            + button("family-add", "all", "Add the built-in tasks")
            + button("label", "", "Label your answers")
            + "</p><p>Or import a file, or write one in the form.</p></div>"
        )
    if not page.rows:
        clear = button("clear", "", "Clear search and filters")
        return f'<div class="tr-empty tr-lane-empty"><p>No task matches.</p><p>{clear}</p></div>'
    heads = "".join(
        f'<th scope="col" class="{width}">{word}</th>'
        for word, width in (
            ("Question", ""), ("Reference", ""), ("Grader", "tr-wider"), ("Family", "tr-wider"), ("Split", "tr-wide"),
            ("Source", "tr-wider"), ("Can train?", ""),
        )
    )  # fmt: skip
    rows = "".join(_row(stored.task, selected) for stored in page.rows)
    first = (page.page - 1) * PAGE + 1
    return (
        f'<div class="tr-table-box"><table class="tr-table tr-tasks"><thead><tr>{heads}</tr></thead><tbody>{rows}'
        f'</tbody></table></div><p class="tr-count" data-testid="tasks-count">'
        f"{first:,}–{first + len(page.rows) - 1:,} of {page.total:,}</p>"
    )


def _row(task: Task, selected: str | None) -> str:
    cells = (
        f'<td class="tr-q" dir="auto"><span class="tr-two">{esc(_cut(task.question, _QUESTION_CHARS))}</span></td>',
        f'<td class="tr-ref" dir="auto">{esc(_cut(task.reference, 40))}</td>',
        f'<td class="tr-wider tr-dim">{esc(grader_word(task.grader))}</td>',
        f'<td class="tr-wider tr-dim">{esc(task.family) or "–"}</td>',
        f'<td class="tr-wide tr-dim">{task.split}</td>',
        f'<td class="tr-wider tr-dim">{esc(task.source) or "–"}</td>',
        f"<td>{_trains(task)}</td>",
    )
    chosen = "true" if task.id == selected else "false"
    return (
        f'<tr data-key="{task.id}" data-id="{task.id}" data-act="open" tabindex="0" aria-selected="{chosen}">'
        f"{''.join(cells)}</tr>"
    )


def _trains(task: Task) -> str:
    why = trouble(task)
    if why is not None:
        words = esc(_cut(why, 300))
        return f'<span class="tr-why-not tr-two" title="{words}"><b aria-hidden="true">✗</b> No: {words}</span>'
    words = {"train": "Yes", "validation": "Checks training", "test": "Kept for the test"}[task.split]
    return f'<span class="tr-can"><b aria-hidden="true">✓</b> {words}</span>'


def _cut(text: str, most: int) -> str:
    flat = " ".join(text[: most * 4].split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def filters(tasks: Iterable[StoredTask], query: Query) -> str:
    """The filters as native selects, which keyboards and screen readers know."""
    known = [stored.task for stored in tasks]
    parts = [
        _select("family", "Family", _seen(known, "family"), query.family),
        _select("split", "Split", {name: name for name in SPLITS}, query.split),
        _select("grader", "Grader", {n: grader_word(n) for n in _seen(known, "grader")}, query.grader),
        _select("source", "Source", _seen(known, "source"), query.source),
        _select("trains", "Can train", {"yes": "yes", "no": "no"}, query.trains),
    ]
    return f'<div class="tr-filters" role="group" aria-label="Filters">{"".join(parts)}</div>'


def _seen(tasks: Iterable[Task], name: str) -> dict[str, str]:
    return {value: value for value in sorted({str(getattr(task, name)) for task in tasks}) if value}


def _select(name: str, word: str, values: Mapping[str, str], chosen: str, empty: str = "any") -> str:
    options = f'<option value="">{esc(word)}: {empty}</option>' + "".join(
        f'<option value="{esc(value)}"{" selected" if chosen == value else ""}>{esc(label)}</option>'
        for value, label in values.items()
    )
    return f'<select name="{name}" aria-label="{esc(word)}" data-filter="{name}">{options}</select>'


def summary(tasks: Sequence[StoredTask]) -> str:
    """Which tasks can train and why others cannot, by split and by family."""
    if not tasks:
        return ""
    reasons: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    families: dict[str, Counter[str]] = {}
    for stored in tasks:
        why = trouble(stored.task)
        of_family = families.setdefault(stored.task.family or "no family", Counter())
        if why is None:
            splits[stored.task.split] += 1
            of_family[stored.task.split] += 1
        else:
            reasons[_kind_of(why)] += 1
            of_family["not"] += 1
    bad = sum(reasons.values())
    head = " · ".join(f"<b>{splits[name]:,}</b> {name}" for name in SPLITS)
    head += f" · <b>{bad:,}</b> cannot train" if bad else ""
    next_step = ""
    if not splits["train"]:
        next_step = (
            '<p class="tr-why-not">Nothing can train yet: at least one usable task must be in the train split.</p>'
        )
    elif not splits["validation"]:
        next_step = '<p class="tr-aside">No task checks training yet: more tasks fill the validation split.</p>'
    rows = "".join(
        f'<tr><th scope="row">{esc(_cut(name, 40))}</th>'
        + "".join(f'<td class="tr-num">{count[split]:,}</td>' for split in SPLITS)
        + f'<td class="tr-num">{count["not"]:,}</td></tr>'
        for name, count in sorted(families.items())[:30]
    )
    heads = "".join(f'<th scope="col" class="tr-num">{name}</th>' for name in (*SPLITS, "cannot train"))
    why = "".join(f"<li><b>{count:,}</b> {esc(_cut(reason, 200))}</li>" for reason, count in reasons.most_common(8))
    return (
        f'<div class="tr-summary" data-testid="tasks-summary"><p>{head}</p>{next_step}'
        + (f'<ul class="tr-reasons" aria-label="Why some cannot train">{why}</ul>' if why else "")
        + f'<details><summary>By family</summary><table class="tr-counts"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></details></div>"
    )


def families(tasks: Sequence[StoredTask]) -> str:
    """The built-in families with their counts, each to add or to remove."""
    here = Counter(stored.task.family for stored in tasks if stored.task.source == BUILTIN)
    rows = []
    for family in FAMILIES:
        made = [task for task in builtin_tasks() if task.family == family]
        count = Counter(task.split for task in made)
        word = family.replace("_", " ")
        act = (
            button("family-remove", family, "Remove", label=f"Remove {word}")
            if here[family] >= len(made)
            else button("family-add", family, "Add the rest" if here[family] else "Add", label=f"Add {word}")
            + (button("family-remove", family, "Remove", label=f"Remove {word}") if here[family] else "")
        )
        cells = "".join(f'<td class="tr-num">{count[name]:,}</td>' for name in SPLITS)
        rows.append(
            f'<tr data-key="{family}" data-family="{family}"><th scope="row">{word}</th>{cells}'
            f'<td class="tr-num">{here[family]:,} of {len(made):,}</td>'
            f'<td><span class="tr-actions">{act}</span></td></tr>'
        )
    heads = "".join(f'<th scope="col" class="tr-num">{name}</th>' for name in (*SPLITS, "here"))
    return (
        f'<table class="tr-counts"><thead><tr><td></td>{heads}<td></td></tr></thead><tbody>{"".join(rows)}</tbody>'
        f'</table><p class="tr-links">{button("family-add", "all", "Add all families")}</p>'
    )


def button(act: str, target: str, word: str, *, label: str = "", more: str = "") -> str:
    named = f' aria-label="{esc(label)}"' if label else ""
    return (
        f'<button type="button" class="tr-button{more}" data-act="{act}" data-id="{esc(target)}" '
        f'data-testid="tasks-{act}"{named}>{esc(word)}</button>'
    )


# --- HTML: form and import ----------------------------------------------------------------------------------------


def form_title(task: Task | None) -> str:
    words = "Edit the task" if task else "New task"
    place = ""
    if task:
        source = esc(task.source) or "–"
        why = trouble(task)
        place = f'<p class="tr-why-not tr-aside">It cannot train: {esc(why)}</p>' if why else ""
        place += f'<p class="tr-aside">Split: {task.split}, by the hash of its content. Source: {source}.</p>'
    return f'<h2 class="tr-form-title" tabindex="-1">{words}</h2>{place}'


def form_links(task: Task | None, *, confirm: bool = False) -> str:
    """Below the form of a stored task: deleting it, which asks first."""
    if task is None:
        return ""
    if confirm:
        return (
            '<div class="tr-problem" role="alertdialog" aria-label="Delete this task?"><b>Delete this task?</b> You '
            'can undo it right afterwards.<div class="tr-links">'
            + button("delete-yes", task.id, "Delete", more=" tr-danger")
            + button("open", task.id, "Keep")
            + "</div></div>"
        )
    return f'<div class="tr-links">{button("delete", task.id, "Delete…")}{button("new", "", "New task")}</div>'


def graded(task: Task, grade: graders.Grade) -> str:
    """A grade in words."""
    sign, word, kind = ("✓", "Right", "done") if grade.correct else ("✗", "Wrong", "warn")
    if not grade.graded:
        sign, word, kind = "?", "Not graded", "info"
    return (
        f'<div class="tr-notice tr-notice-{kind}" role="status" data-kind="{kind}" data-testid="task-grade">'
        f"<p><b>{sign} {word}.</b> {esc(grade.explanation)}</p></div>"
    )


def preview(found: Columns, mapping: Mapping[str, str], name: str) -> str:
    """A file's first rows, and which column becomes what."""
    heads = "".join(f'<th scope="col">{esc(_cut(column, 40))}</th>' for column in found.names)
    rows = "".join(
        "<tr>" + "".join(f'<td dir="auto">{esc(_cut(cell, 60))}</td>' for cell in row) + "</tr>" for row in found.rows
    )
    choices = {column: _cut(column, 40) for column in found.names}
    words = {
        "question": "Question", "reference": "Reference", "grader": "Grader", "family": "Family", "tags": "Tags",
        "choices": "Options", "tests": "Tests", "accept": "Also accepted", "tolerance": "Tolerance", "split": "Split",
        "params": "Grader settings",
    }  # fmt: skip
    selects = "".join(
        f"<label>{word}{_select(field, word, choices, mapping.get(field, ''), 'none')}</label>"
        for field, word in words.items()
    )
    kind = f"CSV, separated by {found.delimiter}" if found.format == "csv" else "JSONL"
    return (
        f'<p class="tr-aside">{esc(_cut(name, 80))}: {kind}. Say which of {len(found.names)} columns is what.</p>'
        f'<div class="tr-filters tr-mapping" role="group" aria-label="Columns">{selects}</div>'
        f'<div class="tr-table-box tr-preview"><table class="tr-table"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def imported(made: Imported, new: int) -> str:
    """What became of an import, with every bad line by its number."""
    there = len(made.tasks) - new
    parts = [f"<b>{new:,}</b> new task{'' if new == 1 else 's'}"]
    parts += [f"{there:,} {'was' if there == 1 else 'were'} there already"] if there else []
    parts += [f"{made.duplicates:,} repeated in the file"] if made.duplicates else []
    parts += (
        [f"{len(made.errors):,} line{'' if len(made.errors) == 1 else 's'} could not be read"] if made.errors else []
    )
    kind = "warn" if made.errors else "done"
    lines = "".join(
        f"<li>Line {bad.number:,}: {esc(_cut(bad.message, 240))}</li>" for bad in made.errors[:_ERRORS_SHOWN]
    )
    rest = len(made.errors) - _ERRORS_SHOWN
    lines += f"<li>and {rest:,} more</li>" if rest > 0 else ""
    listed = f'<ul class="tr-lines" aria-label="Lines that could not be read">{lines}</ul>' if lines else ""
    step = (
        "<p>Correct these lines and import the file again; what is there already is not added twice.</p>"
        if lines
        else ""
    )
    return (
        f'<div class="tr-notice tr-notice-{kind}" role="status" data-kind="{kind}" data-testid="import-result">'
        f"<p>{', '.join(parts)}.</p>{listed}{step}</div>"
    )


# --- HTML: the labelling queue ------------------------------------------------------------------------------------


def card(run: StoredRun | None, at: int, total: int, owner: str, done: int) -> str:
    """One run to judge: question, answer, who did what; or what to do when there is none."""
    if run is None:
        words = (
            f"All labelled: {done} in this sitting."
            if done
            else "There is nothing to label. Ask questions in the Run tab; each finished one comes here."
        )
        return (
            f'<div class="tr-empty tr-lane-empty" data-testid="queue-empty"><p>{words}</p><p class="tr-links">'
            '<button type="button" class="tr-button" data-tab="tab-run">Ask a question</button>'
            f"{button('reload', '', 'Look again')}</p></div>"
        )
    thumb = thumb_of(run, owner)
    right = next((label.value for label in reversed(run.labels) if _own(label, REFERENCE, owner)), None)
    turns = [turn for turn in run.turns if turn.counts]
    steps = "".join(
        f'<details data-key="{esc(turn.id)}"><summary>Turn {turn.turn} {role_badge(turn.role)} '
        f"<span class='tr-agent'>{esc(turn.agent)}</span></summary>{prose(turn.text[:20_000])}</details>"
        for turn in turns
    )
    roles = ", ".join(ROLE_WORDS[turn.role] if turn.role else "Answer" for turn in turns)
    state = {UP: "✓ marked right", DOWN: "✗ marked wrong"}.get(thumb or "", "not labelled")
    if thumb == DOWN:
        state += f", right answer: {_cut(right, 60)}" if right else ", the right answer is missing"
    said = prose(run.answer[:20_000]) if run.answer else '<p class="tr-aside">The run gave no answer.</p>'
    asked = question_of(run)
    return (
        f'<article class="tr-detail tr-queue" data-key="{esc(run.id)}" data-id="{esc(run.id)}" '
        'data-testid="queue-card">'
        f'<p class="tr-progress"><b data-testid="queue-at">{at + 1} of {total}</b> <span>{done} labelled</span> '
        f'<progress max="{total}" value="{min(done, total)}" aria-label="Labelled"></progress> '
        f'<span data-testid="queue-state">{esc(state)}</span></p>'
        f"<section><h3>Question</h3>{prose(asked[:20_000])}</section><section><h3>Answer</h3>{said}</section>"
        f'<section><h3>How it came about <span class="tr-aside">{esc(roles)}</span></h3>{steps}</section>'
        '<div class="tr-links tr-judge">'
        + button("right", run.id, "✓ Right (1)", more=" tr-yes")
        + button("wrong", run.id, "✗ Wrong (2)", more=" tr-danger")
        + button("edit", run.id, "Edit reference (E)")
        + button("previous", run.id, "↑ Previous (K)")
        + button("next", run.id, "↓ Skip (J)")
        + "</div></article>"
    )
