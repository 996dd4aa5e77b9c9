"""Tasks from a file: JSONL or CSV bytes whose columns are mapped to a task's fields, with every bad line reported.

Two steps: `columns` says what the file holds and guesses the mapping; `read_tasks` makes the tasks. A bad record is
reported with the number of the physical line it begins on, and all others are kept. Ids are hashes of the content, so
reading a file twice makes the same tasks, and lines of `task.to_jsonl` come back exactly as they were, whatever the
defaults. Text in CSV fields gets plain newlines; JSON values keep theirs.

Bounds (our choice): a file of 20 MB, a record of 100,000 characters (below the csv module's own limit for a field)
and of 5,000 lines. Not covered: storing tasks, other encodings than UTF-8, one JSON list as a whole file, and whether
a task can train (`graders.trouble`).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Literal, NoReturn, cast, get_args

from trinity_core.answers import calendar_date, clock_time, number_and_unit
from trinity_core.errors import InputError
from trinity_core.tasks.graders import GRADERS
from trinity_core.tasks.task import Split, Task, from_json

Format = Literal["jsonl", "csv"]

MAX_BYTES = 20_000_000
MAX_RECORD_CHARS = 100_000
MAX_RECORD_LINES = 5_000
PREVIEW = 5
"""Rows that `columns` shows."""
_LOOKED_AT = 200
"""Records that are looked at for column names."""

FIELDS = (
    "question", "reference", "grader", "family", "tags", "choices", "tests", "accept", "tolerance", "split", "params",
)  # fmt: skip
"""What a column may be mapped to. Question and reference are needed."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "prompt", "query", "problem", "instruction", "input", "text", "ask"),
    "reference": (
        "reference", "answer", "rightanswer", "correctanswer", "referenceanswer", "target", "expected", "gold",
        "goldanswer", "groundtruth", "solution", "answerkey", "answers", "output", "correct", "response", "label",
    ),
    "grader": ("grader", "checker", "grading"),
    "family": ("family", "category", "subject", "topic", "domain", "type"),
    "tags": ("tags", "tag", "keywords", "labels"),
    "choices": ("choices", "options", "alternatives"),
    "tests": ("tests", "test", "unittests", "testcode", "testlist"),
    "accept": ("accept", "aliases", "alsoaccepted", "synonyms"),
    "tolerance": ("tolerance", "relativetolerance"),
    "split": ("split", "subset"),
    "params": ("params", "graderparams"),
}  # fmt: skip
"""Usual column names in order of preference, in small letters without anything between the words."""

_SPLITS: Mapping[str, Split] = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test", "testing": "test", "heldout": "test",
}  # fmt: skip
_OPTION = re.compile(r"^[ \t]*\(?([A-J])[).:][ \t]+(\S[^\n]*?)[ \t]*$", re.MULTILINE)
_DELIMITERS = (",", ";", "\t", "|")
_WORDS = {";": "semicolons", ",": "commas", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True, slots=True)
class Columns:
    """What a file holds: its column names, the first rows as text (one cell a column), and the guessed mapping from a
    task's field to a column name. `delimiter` is in words, empty for JSONL."""

    format: Format
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    guess: Mapping[str, str]
    delimiter: str = ""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a task gets where no column says it. An empty `grader` chooses one by the form of each reference."""

    grader: str = ""
    family: str = ""
    tags: tuple[str, ...] = ()
    source: str = "import"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A record that is no task. `number` is the physical line it begins on, from 1."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The tasks of a file, each once, in order; what could not be read; how many records repeated an earlier one."""

    tasks: tuple[Task, ...]
    errors: tuple[BadLine, ...]
    duplicates: int


@dataclass(frozen=True, slots=True)
class _Record:
    number: int
    values: Mapping[str, Any]


def columns(data: bytes, name: str) -> Columns:
    """The columns of a file called `name`. Raises InputError when it is not UTF-8, too large, empty, or neither
    JSONL nor CSV."""
    text = _decoded(data)
    if _format(text, name) == "csv":
        sheet = _Sheet(text)
        names = sheet.names
        word = _WORDS[sheet.delimiter]
        found = [record for record in islice(sheet.records(), _LOOKED_AT) if isinstance(record, _Record)]
        kind: Format = "csv"
    else:
        kind, word = "jsonl", ""
        found = [record for record in islice(_lines(text), _LOOKED_AT) if isinstance(record, _Record)]
        names = tuple(dict.fromkeys(key for record in found for key in record.values))
        if not names:
            first = next((bad for bad in _lines(text) if isinstance(bad, BadLine)), None)
            why = f" Line {first.number}: {first.message}" if first else ""
            raise InputError(f"No line of the file is a JSON object with values.{why}")
    rows = tuple(tuple(_shown(record.values.get(name)) for name in names) for record in found[:PREVIEW])
    return Columns(kind, names, rows, guess_mapping(names), word)


def guess_mapping(names: Sequence[str]) -> dict[str, str]:
    """Which column is which field, by their usual names; each column at most once."""
    plain = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in names}
    guess: dict[str, str] = {}
    for field, known in _NAMES.items():
        for word in known:
            match = next((name for name in names if plain[name] == word and name not in guess.values()), None)
            if match is not None:
                guess[field] = match
                break
    return guess


def read_tasks(data: bytes, name: str, mapping: Mapping[str, str], defaults: Defaults = Defaults()) -> Imported:
    """The tasks of a file. `mapping` is from names in `FIELDS` to column names.

    Raises InputError as `columns` does, and when the mapping names a column that is not there, or no question or
    reference, or the default grader is not known. Everything that is wrong with one record is a `BadLine` instead.
    """
    text = _decoded(data)
    csv_file = _format(text, name) == "csv"
    sheet = _Sheet(text) if csv_file else None
    _check(mapping, sheet.names if sheet else None)
    _known_grader(defaults.grader or "exact")
    tasks: dict[str, Task] = {}
    errors: list[BadLine] = []
    duplicates = 0
    for record in sheet.records() if sheet else _lines(text):
        if isinstance(record, BadLine):
            errors.append(record)
            continue
        try:
            task = _task(record.values, mapping, defaults)
        except InputError as error:
            errors.append(BadLine(record.number, str(error)))
            continue
        duplicates += task.id in tasks
        tasks.setdefault(task.id, task)
    return Imported(tuple(tasks.values()), tuple(errors), duplicates)


def guess_grader(reference: str, choices: Mapping[str, str] | None = None) -> str:
    """The grader that fits the form of a right answer: its letter or text among choices, a number, or short text.

    Text that no reply repeats word for word (several lines, or more than 80 characters) is for a person to judge.
    """
    if choices:
        return "choice"
    value = reference.strip()
    if number_and_unit(value) is not None and calendar_date(value) is None and clock_time(value) is None:
        return "numeric"
    if "\n" in value or len(value) > 80:
        return "human"
    return "exact"


def options_in(question: str) -> dict[str, str]:
    """The options that stand in a question, one a line ("A) red"), by letter; empty unless they run A, B, and on."""
    found = _OPTION.findall(question)
    letters = [letter for letter, _ in found]
    if len(found) < 2 or letters != [chr(ord("A") + index) for index in range(len(found))]:
        return {}
    return dict(found)


# --- Bytes to records -----------------------------------------------------------------------------------------


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise InputError(f"The file has {len(data):,} bytes; at most {MAX_BYTES:,} are read. Split it into parts.")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("The file is UTF-16. Save it as UTF-8 (in Excel: “CSV UTF-8”) and import it again.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"The file is not UTF-8: line {line} holds the byte 0x{data[error.start]:02X}, as in Latin-1 or Windows "
            "files. Save it as UTF-8 (in Excel: “CSV UTF-8”) and import it again."
        ) from None
    if not text.strip():
        raise InputError("The file is empty. It needs at least one task: a question and its answer.")
    return text


def _format(text: str, name: str) -> Format:
    """By the name's ending; a name that says nothing leaves it to the first character."""
    start = text.lstrip()[:1]
    if start == "[" and not name.lower().endswith((".csv", ".tsv")):
        raise InputError("The file is one JSON list. Write one JSON object a line (JSONL), or CSV with a header.")
    if name.lower().endswith((".jsonl", ".ndjson", ".json")):
        return "jsonl"
    if name.lower().endswith((".csv", ".tsv")):
        return "csv"
    return "jsonl" if start == "{" else "csv"


def _lines(text: str) -> Iterator[_Record | BadLine]:
    """The records of a JSONL text."""
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if not line.strip():
            continue
        if len(line) > MAX_RECORD_CHARS:
            yield BadLine(number, _too_long(len(line)))
            continue
        try:
            value = json.loads(line, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            yield BadLine(number, f"This is not JSON: {error.msg} at character {error.pos + 1}.")
        except (ValueError, RecursionError) as error:
            yield BadLine(number, f"This JSON cannot be read: {error}")
        else:
            if isinstance(value, dict):
                yield _Record(number, value)
            else:
                yield BadLine(number, "The line is not a JSON object such as {“question”: …, “reference”: …}.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value.")


def _too_long(length: int) -> str:
    return f"The record has {length:,} characters; at most {MAX_RECORD_CHARS:,} are read."


class _Sheet:
    """A CSV text: delimiter, header, records. An unclosed quote costs one line, not the rest of the file."""

    def __init__(self, text: str) -> None:
        self._lines = re.findall(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$", text)
        self._start = 0
        self.delimiter = ""
        if self._lines and (declared := re.fullmatch(r'"?sep=(.)"?\s*', self._lines[0])):
            self.delimiter, self._start = declared.group(1), 1
            if self.delimiter not in _DELIMITERS:
                raise InputError(f"The first line names the separator {self.delimiter!r}; use a comma instead.")
        self.delimiter = self.delimiter or self._sniffed()
        head = next(self._rows(self.delimiter), None)
        if head is None or isinstance(head, BadLine):
            why = f" Line {head.number}: {head.message}" if isinstance(head, BadLine) else ""
            raise InputError(f"The header of the CSV cannot be read.{why}")
        self.names = _unique_names(head[1])

    def records(self) -> Iterator[_Record | BadLine]:
        """All rows below the header."""
        rows = self._rows(self.delimiter)
        next(rows)
        for row in rows:
            if isinstance(row, BadLine):
                yield row
                continue
            number, cells = row
            if len(cells) > len(self.names) and any(cell.strip() for cell in cells[len(self.names) :]):
                yield BadLine(
                    number,
                    f"The row has {len(cells)} cells and the header {len(self.names)}. Put text that holds a "
                    f"separator into double quotes.",
                )
                continue
            yield _Record(number, dict(zip(self.names, cells, strict=False)))

    def _sniffed(self) -> str:
        """The delimiter under which the first rows have the header's number of cells, more cells being better."""

        def score(delimiter: str) -> tuple[bool, int, int]:
            rows = list(islice(self._rows(delimiter), 20))
            sizes = [len(row[1]) for row in rows if not isinstance(row, BadLine)]
            if not sizes:
                return (False, 0, 0)
            return (sizes[0] > 1, sum(size == sizes[0] for size in sizes), sizes[0])

        return max(_DELIMITERS, key=score)

    def _rows(self, delimiter: str) -> Iterator[tuple[int, list[str]] | BadLine]:
        """Each row with the line it begins on. Blank rows are left out."""
        at = self._start
        while at < len(self._lines):
            end, row = self._row(at, delimiter)
            if isinstance(row, BadLine):
                yield row
            elif any(cell.strip() for cell in row):
                yield at + 1, row
            at = end

    def _row(self, at: int, delimiter: str) -> tuple[int, list[str] | BadLine]:
        """The row that begins on line `at` (from 0), and the line after it."""
        parts: list[str] = []
        length = 0
        message = "A double quote opens here and never closes."
        for end in range(at, min(len(self._lines), at + MAX_RECORD_LINES)):
            line = self._lines[end]
            parts.append(line)
            length += len(line)
            if length > MAX_RECORD_CHARS:
                if end > at:
                    message = f"A double quote opens here and does not close within {MAX_RECORD_CHARS:,} characters."
                else:
                    message = _too_long(length)
                break
            if end > at and '"' not in line:
                continue  # it cannot close the quote
            try:
                rows = list(csv.reader(parts, delimiter=delimiter, strict=True))
            except csv.Error as error:
                if "unexpected end of data" in str(error):
                    continue
                message = "A closing double quote must be followed by a separator; write quotes inside text twice."
                break
            return end + 1, [re.sub(r"\r\n?", "\n", cell) for cell in (rows[0] if rows else [])]
        return at + 1, BadLine(at + 1, message)


def _unique_names(cells: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    for index, cell in enumerate(cells, 1):
        base = cell.strip() or f"column {index}"
        name, count = base, 1
        while name in names:
            count += 1
            name = f"{base} ({count})"
        names.append(name)
    return tuple(names)


# --- Records to tasks -----------------------------------------------------------------------------------------


def _check(mapping: Mapping[str, str], names: Sequence[str] | None) -> None:
    for field, column in mapping.items():
        if field not in FIELDS:
            raise InputError(f"There is no field {field!r} to map a column to. There are {', '.join(FIELDS)}.")
        if names is not None and column not in names:
            raise InputError(f"The file has no column {column!r}. It has {', '.join(names)}.")
    for field in ("question", "reference"):
        if field not in mapping:
            raise InputError(f"Say which column holds the {field}.")


def _known_grader(name: str) -> None:
    if name not in GRADERS:
        raise InputError(f"There is no grader {name!r}; there are {', '.join(sorted(GRADERS))}.")


def _task(values: Mapping[str, Any], mapping: Mapping[str, str], defaults: Defaults) -> Task:
    """The task of one record. Raises InputError saying what is wrong with it."""
    if _is_ours(values) and mapping["question"] == "question" and mapping["reference"] == "reference":
        task = from_json(values)
        _known_grader(task.grader)
        return task
    given = {field: values.get(column) for field, column in mapping.items()}
    question = _text(given["question"], "question")
    params = _params(given)
    references = given["reference"]
    if isinstance(references, list):
        if not references:
            raise InputError("The reference is an empty list.")
        others = [_text(other, "reference") for other in references[1:]]
        if others:
            params["accept"] = [*params.get("accept", []), *others]
        references = references[0]
    reference = _text(references, "reference")
    options: Mapping[str, str] = params.get("choices", {})
    grader = _text(given.get("grader"), "grader", needed=False).lower() or defaults.grader
    if not grader:
        in_question = options_in(question) if not options and re.fullmatch(r"[A-J]", reference.strip()) else {}
        if reference.strip() in in_question:
            params["choices"] = options = in_question
        grader = guess_grader(reference, options)
        if params.get("tests"):
            grader = "code"
    _known_grader(grader)
    if grader == "choice" and options:
        reference = _option_named(reference, options)
    return Task.make(
        question,
        reference,
        grader=grader,
        family=_text(given.get("family"), "family", needed=False) or defaults.family,
        tags=tuple(_items(given.get("tags"), r"[,;|\n]")) or defaults.tags,
        source=defaults.source,
        params=params,
        split=_split(given.get("split")),
    )


def _is_ours(values: Mapping[str, Any]) -> bool:
    return values.keys() == {field.name for field in fields(Task)}


def _text(value: Any, field: str, *, needed: bool = True) -> str:
    """A cell as text. Numbers and truth values are written as JSON writes them; lists and objects are refused."""
    if isinstance(value, str):
        text = value if field in ("question", "reference") else value.strip()
    elif value is None:
        text = ""
    elif isinstance(value, bool | int | float):
        text = json.dumps(value)
    else:
        raise InputError(f"The {field} is {'a list' if isinstance(value, list) else 'an object'}, not text.")
    if needed and not text.strip():
        raise InputError(f"The {field} is empty or missing.")
    return text.strip()


def _params(given: Mapping[str, Any]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if (own := _loaded(given.get("params"))) not in (None, ""):
        if not isinstance(own, Mapping):
            raise InputError("The grader settings are not a JSON object.")
        params.update(own)
    if options := _choices(given.get("choices")):
        params["choices"] = options
    if accepted := _items(given.get("accept"), r"[|\n]"):
        params["accept"] = accepted
    if (tests := _loaded(given.get("tests"))) not in (None, "", []):
        params["tests"] = tests if isinstance(tests, list) else _text(tests, "tests")
    if tolerance := _text(given.get("tolerance"), "tolerance", needed=False):
        params["tolerance"] = tolerance_of(tolerance)
    return params


def tolerance_of(text: str) -> float:
    """A relative tolerance from text such as 0.01 or 1 %. Raises InputError for anything else."""
    percent = text.strip().endswith("%")
    try:
        value = float(text.strip().rstrip("% ")) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise InputError(f"The tolerance {text!r} is not a share of the answer from 0 to below 1, such as 0.01.")
    return value


def _loaded(value: Any) -> Any:
    """A cell that may hold JSON as text."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return json.loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return value
    return value


def _items(value: Any, separator: str) -> list[str]:
    value = _loaded(value)
    if isinstance(value, Mapping):
        raise InputError("An object stands where a list of texts was expected.")
    parts = value if isinstance(value, list) else re.split(separator, _text(value, "list", needed=False))
    return [part for part in (_text(part, "entry", needed=False) for part in parts) if part]


def _choices(value: Any) -> dict[str, str]:
    """Options by letter, from a list, an object, an object of two lists (text and label), or text."""
    value = _loaded(value)
    if value in (None, "", [], {}):
        return {}
    if isinstance(value, Mapping):
        if isinstance(value.get("text"), list) and isinstance(value.get("label"), list):
            value = dict(zip(map(str, value["label"]), value["text"], strict=False))
        options = {str(letter).strip().upper(): _text(text, "option") for letter, text in value.items()}
        if any(len(letter) != 1 or not letter.isalnum() for letter in options):
            raise InputError("The options need one letter each, such as {“A”: “red”, “B”: “blue”}.")
        return options
    if isinstance(value, str) and (lettered := options_in("\n".join(_items(value, r"[|;\n]")))):
        return lettered
    texts = _items(value, r"[|;\n]")
    if not 2 <= len(texts) <= 26:
        raise InputError(
            f"There {'is one option' if len(texts) == 1 else f'are {len(texts)} options'}; 2 to 26 can be."
        )
    return {chr(ord("A") + index): text for index, text in enumerate(texts)}


def _option_named(reference: str, options: Mapping[str, str]) -> str:
    """The reference; a number that is neither a letter nor an option's text counts the options from 0."""
    names = {*options, *(text.strip().lower() for text in options.values())}
    if reference.isdecimal() and reference not in names and int(reference) < len(options):
        return list(options)[int(reference)]
    return reference


def _split(value: Any) -> Split | None:
    word = _text(value, "split", needed=False).lower()
    if not word:
        return None
    found = _SPLITS.get(re.sub(r"[^a-z]", "", word))
    if found is None:
        raise InputError(f"The split {word!r} is none of {', '.join(cast(tuple[str, ...], get_args(Split)))}.")
    return found


def _shown(value: Any) -> str:
    """A cell for the preview."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"
