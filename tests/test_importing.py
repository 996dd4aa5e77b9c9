"""Reading tasks from files: what is found, what is reported by line, and what comes back exactly."""

from __future__ import annotations

import json
import time

import pytest

from trinity_core.errors import InputError
from trinity_core.tasks import importing
from trinity_core.tasks.builtin import builtin_tasks
from trinity_core.tasks.importing import BadLine, Defaults, columns, guess_grader, options_in, read_tasks
from trinity_core.tasks.task import Task, to_jsonl

QA = {"question": "question", "reference": "answer"}


def numbers(errors: tuple[BadLine, ...]) -> list[int]:
    return [bad.number for bad in errors]


def pairs(tasks: tuple[Task, ...]) -> list[tuple[str, str]]:
    return [(task.question, task.reference) for task in tasks]


# --- CSV ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_of_every_dialect(end: str, mark: str, delimiter: str) -> None:
    rows = ["Question%Answer", '"What is 2%1?"%3', '"Two', 'lines ""quoted"""%ok', "", "Capital of Peru?%Lima"]
    data = (mark + end.join(rows).replace("%", delimiter) + end).encode()
    found = columns(data, "tasks.csv")
    assert found.names == ("Question", "Answer")
    assert found.guess == {"question": "Question", "reference": "Answer"}
    assert found.rows[1] == ('Two\nlines "quoted"', "ok"), "newlines inside a field are plain ones"
    made = read_tasks(data, "tasks.csv", found.guess)
    assert pairs(made.tasks) == [
        (f"What is 2{delimiter}1?".strip(), "3"),
        ('Two\nlines "quoted"', "ok"),
        ("Capital of Peru?", "Lima"),
    ]
    assert made.errors == ()


def test_excels_separator_line_and_commas_in_text() -> None:
    data = b"sep=;\nquestion;answer\nOne, two, or three?;two\nA, b, c?;b\n"
    assert columns(data, "x.csv").delimiter == "semicolons"
    assert pairs(read_tasks(data, "x.csv", QA).tasks) == [("One, two, or three?", "two"), ("A, b, c?", "b")]


def test_bad_rows_are_told_by_their_physical_line_and_the_rest_is_kept() -> None:
    data = (
        b"question,answer\n"  # 1
        b'"first\nsecond\nthird",1\n'  # 2 to 4
        b",2\n"  # 5: no question
        b"q3,\n"  # 6: no answer
        b"\n"  # 7
        b"q4,4,and,more\n"  # 8: too many cells
        b'"q5"x,5\n'  # 9: text behind a closing quote
        b"q6\n"  # 10: no second cell
        b'q 5" disk,7\n'  # 11: a quote inside plain text is text
        b"q8,8\n"
    )  # 12
    made = read_tasks(data, "x.csv", QA)
    assert numbers(made.errors) == [5, 6, 8, 9, 10]
    assert pairs(made.tasks) == [("first\nsecond\nthird", "1"), ('q 5" disk', "7"), ("q8", "8")]
    assert "question is empty" in made.errors[0].message
    assert "4 cells" in made.errors[2].message


def test_an_unclosed_quote_costs_one_line() -> None:
    data = b'question,answer\nq1,1\n"q2,2\nq3,3\nq4,4\n'
    made = read_tasks(data, "x.csv", QA)
    assert numbers(made.errors) == [3]
    assert "never closes" in made.errors[0].message
    assert pairs(made.tasks) == [("q1", "1"), ("q3", "3"), ("q4", "4")]


def test_huge_lines_are_refused_and_take_little_time() -> None:
    long = "x" * (importing.MAX_RECORD_CHARS + 1)
    unclosed = "\n".join(['"open'] + ["short line"] * 60_000)
    began = time.monotonic()
    made = read_tasks(f"question,answer\n{long},1\nq,2\n{unclosed}\n".encode(), "x.csv", QA)
    assert time.monotonic() - began < 10
    assert numbers(made.errors)[:2] == [2, 4]
    assert pairs(made.tasks) == [("q", "2")]
    lines = f'{{"question": "{long}", "answer": "1"}}\n{{"question": "q", "answer": 2}}\n'
    made = read_tasks(lines.encode(), "x.jsonl", QA)
    assert (numbers(made.errors), pairs(made.tasks)) == ([1], [("q", "2")])


def test_names_that_are_missing_or_twice_still_tell_columns_apart() -> None:
    assert columns(b"question,answer,answer,\nq,a,b,c\n", "x.csv").names == (
        "question",
        "answer",
        "answer (2)",
        "column 4",
    )


# --- Files that cannot be read ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        ("question,answer\nWo ist Köln?,Rhein\n".encode("latin-1"), "x.csv", r"not UTF-8: line 2 .*0xF6.*Save it"),
        ("question,answer\nq,a\n".encode("utf-16"), "x.csv", "UTF-16"),
        (b"", "x.csv", "empty"),
        (b"\xef\xbb\xbf \r\n", "x.jsonl", "empty"),
        (b'[{"question": "q", "answer": "a"}]', "x.json", "one JSON list"),
        (b"plain words\n", "x.jsonl", "Line 1"),
        (b"x" * (importing.MAX_BYTES + 1), "x.csv", "at most"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_in_words(data: bytes, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        columns(data, name)
    if data != b"plain words\n":  # where every line is bad, reading reports each line instead
        with pytest.raises(InputError, match=message):
            read_tasks(data, name, QA)


def test_a_wrong_mapping_is_refused() -> None:
    data = b"question,answer\nq,a\n"
    with pytest.raises(InputError, match="reference"):
        read_tasks(data, "x.csv", {"question": "question"})
    with pytest.raises(InputError, match="no column 'nope'"):
        read_tasks(data, "x.csv", {"question": "question", "reference": "nope"})
    with pytest.raises(InputError, match="no field 'colour'"):
        read_tasks(data, "x.csv", {**QA, "colour": "answer"})
    with pytest.raises(InputError, match="no grader 'nope'"):
        read_tasks(data, "x.csv", QA, Defaults(grader="nope"))


# --- JSONL --------------------------------------------------------------------------------------------------


def test_our_own_export_comes_back_exactly() -> None:
    extra = Task.make(
        " blanks kept \r\n", "Ω\u2028x", grader="contains", family="f", tags=("a", "b"), source="bench",
        params={"accept": ["y"], "case": True}, split="test",
    )  # fmt: skip
    tasks = (*builtin_tasks(), extra)
    data = to_jsonl(tasks).encode()
    found = columns(data, "trinity-tasks.jsonl")
    made = read_tasks(data, "trinity-tasks.jsonl", found.guess, Defaults(grader="contains", family="x", source="y"))
    assert made.tasks == tasks
    assert (made.errors, made.duplicates) == ((), 0)
    again = read_tasks(data + data, "trinity-tasks.jsonl", found.guess)
    assert again.tasks == tasks
    assert again.duplicates == len(tasks)


def test_an_exported_line_that_was_changed_is_reported() -> None:
    row = json.loads(to_jsonl([Task.make("q", "a")])) | {"reference": "b"}
    made = read_tasks(json.dumps(row).encode(), "x.jsonl", {"question": "question", "reference": "reference"})
    assert (made.tasks, numbers(made.errors)) == ((), [1])
    assert "Remove the id" in made.errors[0].message


def test_bad_json_lines_are_told_by_number() -> None:
    deep = '{"question": ' + "[" * 50_000 + "]" * 50_000 + "}"
    lines = [
        '{"question": "q1", "answer": "a"}',
        "",
        '{"question": "q2", "answer": }',
        "[1, 2]",
        '{"question": "q3", "answer": NaN}',
        '{"question": {"a": 1}, "answer": "x"}',
        deep,
        '{"question": "q4"}',
        '{"question": "q5", "answer": 1' + "0" * 5000 + "}",
        '{"question": "bad \\ud800 half", "answer": "x"}',
        '{"question": "q9", "answer": "z"}',
    ]
    made = read_tasks("\r\n".join(lines).encode(), "x.jsonl", QA)
    assert set(numbers(made.errors)) >= {3, 4, 5, 6, 7, 8, 9}
    assert set(numbers(made.errors)) <= {3, 4, 5, 6, 7, 8, 9, 10}
    assert pairs(made.tasks)[0] == ("q1", "a")
    assert pairs(made.tasks)[-1] == ("q9", "z")


# --- Fields -------------------------------------------------------------------------------------------------


def one(row: dict[str, object], mapping: dict[str, str] | None = None, **defaults: str) -> Task:
    data = json.dumps(row).encode()
    made = read_tasks(data, "x.jsonl", mapping or columns(data, "x.jsonl").guess, Defaults(**defaults))  # type: ignore[arg-type]
    assert made.errors == ()
    return made.tasks[0]


def test_the_grader_follows_the_answer_unless_one_is_named() -> None:
    assert one({"question": "q", "answer": 42}).grader == "numeric"
    assert one({"question": "q", "answer": "$1,200"}).grader == "numeric"
    assert one({"question": "q", "answer": "2024-03-15"}).grader == "exact"
    assert one({"question": "q", "answer": "12:30"}).grader == "exact"
    assert one({"question": "q", "answer": "Lima"}).grader == "exact"
    assert one({"question": "q", "answer": "Lima"}, grader="contains").grader == "contains"
    assert one({"question": "q", "answer": "Lima", "grader": "Contains"}).grader == "contains"
    assert guess_grader("7", {"A": "7", "B": "8"}) == "choice"


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        (["red", "blue"], "B"),
        (["red", "blue"], 1),
        ({"A": "red", "B": "blue"}, "blue"),
        ({"text": ["red", "blue"], "label": ["A", "B"]}, "B"),
        ("red|blue", "1"),
        ('["red", "blue"]', "B"),
        ("A) red\nB) blue", "B"),
    ],
)
def test_choices_in_every_usual_form(choices: object, answer: object) -> None:
    task = one({"question": "Colour?", "choices": choices, "answer": answer})
    assert task.grader == "choice"
    assert task.params["choices"] == {"A": "red", "B": "blue"}
    assert task.reference in ("B", "blue")


def test_a_letter_among_the_questions_own_options_is_a_choice() -> None:
    question = "Which?\nA) red\nB) blue"
    assert options_in(question) == {"A": "red", "B": "blue"}
    assert one({"question": question, "answer": "B"}).params == {"choices": {"A": "red", "B": "blue"}}
    assert one({"question": "Which vitamin?", "answer": "B"}).grader == "exact"
    assert options_in("A) only") == {}


def test_the_other_fields() -> None:
    task = one(
        {
            "Prompt": "q", "Target": ["1", "one"], "Category": "maths", "tags": "easy, short", "tolerance": "1 %",
            "split": "dev", "params": {"case": True}, "grader": "numeric",
        }
    )  # fmt: skip
    assert (task.reference, task.family, task.tags, task.split) == ("1", "maths", ("easy", "short"), "validation")
    assert task.params == {"case": True, "accept": ["one"], "tolerance": 0.01}
    assert one({"question": "q", "answer": True}).reference == "true"
    assert one({"question": "q", "answer": "a"}, family="f", source="file.csv").source == "file.csv"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"grader": "nope"}, "no grader 'nope'"),
        ({"split": "holiday"}, "none of train, validation, test"),
        ({"tolerance": "much"}, "tolerance 'much'"),
        ({"tolerance": "nan"}, "tolerance 'nan'"),
        ({"choices": ["only"]}, "one option"),
        ({"choices": {"AB": "x"}}, "one letter"),
        ({"params": "[1]"}, "not a JSON object"),
        ({"answer": []}, "empty list"),
        ({"answer": [["x"]]}, "a list, not text"),
        ({"answer": {"x": 1}}, "an object, not text"),
    ],
)
def test_a_wrong_value_is_one_bad_line(row: dict[str, object], message: str) -> None:
    mapping = {**QA, **{name: name for name in ("grader", "split", "tolerance", "choices", "params")}}
    data = "\n".join(json.dumps({"question": f"q{i}", "answer": "a", **(row if i == 1 else {})}) for i in range(3))
    made = read_tasks(data.encode(), "x.jsonl", mapping)
    assert (numbers(made.errors), len(made.tasks)) == ([2], 2)
    assert message in made.errors[0].message


def test_a_file_with_the_same_task_twice_holds_it_once() -> None:
    made = read_tasks(b"question,answer\nq,a\nq,a\nq,b\n", "x.csv", QA)
    assert (len(made.tasks), made.duplicates) == (2, 1)
