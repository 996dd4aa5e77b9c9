"""What the Train tab makes of a form, of accuracies and of generations, without a browser."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.test_training_manager import Control, ScriptedTrainer, begin, ended, manager, runs, store, trainer
from trinity_core.config import Settings
from trinity_core.errors import InputError
from trinity_core.session.loading import deployed_id
from trinity_core.training.plan import Plan, Preflight
from trinity_core.types import Generation, Limits, Progress, Validation
from ui import trainplots, trainview
from ui.tabs.train import CHOICES, FIELDS, Handlers, plan_of
from ui.training import Record, TrainingManager, TrainingStatus
from ui.trainview import Held, InUse

__all__ = ["Control", "ScriptedTrainer", "manager", "runs", "store", "trainer"]  # fixtures by name


def typed(**changed: Any) -> list[Any]:
    values: dict[str, Any] = {"method": "evolve", "head": "linear", "svf": False, "estimator": "expectation"}
    values |= {field.name: field.default for field in FIELDS} | changed
    return [values[name] for name in (*CHOICES, *(field.name for field in FIELDS))]


def test_the_untouched_form_is_the_default_plan() -> None:
    assert plan_of(typed()) == Plan()


def test_every_field_reaches_the_plan() -> None:
    given = typed(
        method="random", svf=True, estimator="sampled", evaluations="40,000", population="12", sigma="0.5",
        tasks_per_candidate="8", runs="2", branch="0.1", max_turns="4", local_tokens="32", remote_tokens="512",
        turn_cost="0,05", validate_every="3", seed="7", calls="100", tokens="2000", cost="1.5", warm_start=" abc ",
        leave_out="dates", families="letters, arithmetic ,",
    )  # fmt: skip
    assert plan_of(given) == Plan(
        method="random", svf=True, estimator="sampled", evaluations=40_000, population=12, sigma=0.5,
        tasks_per_candidate=8, runs=2, branch=0.1, max_turns=4, local_tokens=32, remote_tokens=512, turn_cost=0.05,
        validate_every=3, seed=7, limits=Limits(100, 2000, 1.5), warm_start="abc", leave_out="dates",
        families=("letters", "arithmetic"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("evaluations", "", "Budget"),
        ("evaluations", "many", "Budget"),
        ("sigma", "nan", "step size"),
        ("sigma", "0", "sigma"),
        ("runs", "1.5", "Runs per task"),
        ("population", "2", "population"),
        ("cost", "-1", "Limit: dollars"),
        ("seed", "1e400", "Seed"),
    ],
)
def test_a_number_that_cannot_be_names_its_field(field: str, value: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan_of(typed(**{field: value}))


@pytest.mark.parametrize(
    ("new", "old", "claim"),
    [
        ((0.81, 120), (0.79, 120), "inconclusive"),  # two points apart on 120 tasks are chance
        ((0.79, 40), (0.73, 40), "inconclusive"),
        ((0.90, 400), (0.70, 400), "better"),
        ((0.50, 400), (0.70, 400), "worse"),
        ((0.90, 0), (0.70, 400), "inconclusive"),
    ],
)
def test_a_difference_is_claimed_only_where_the_intervals_do_not_overlap(
    new: tuple[float, int], old: tuple[float, int], claim: str
) -> None:
    one, two = (Held(share, *trainview.wilson(share, n), n) for share, n in (new, old))
    assert trainview.compare(one, two) == claim
    record = Record(
        "j", "evolve", "done", checkpoint_id="fresh", result={"validation": {"accuracy": new[0], "n": new[1]}}
    )
    shown = trainview.deploying(record, InUse("used", two))
    assert f'data-verdict="{claim}"' in shown
    assert claim.capitalize() in shown


def test_unmeasured_is_not_compared_and_other_tasks_are_named() -> None:
    record = Record("j", "evolve", "done", checkpoint_id="new", result={"validation": {"accuracy": 0.9, "n": 400}})
    assert trainview.compare(trainview.held(record), None) == "unknown"
    assert "Not comparable" in trainview.deploying(record, InUse())
    old = Held(0.5, 0.45, 0.55, 400)
    assert "different tasks" in trainview.deploying(record, InUse("x", old, same_tasks=False))
    assert "different tasks" not in trainview.deploying(record, InUse("x", old))


def test_the_wilson_interval() -> None:
    low, high = trainview.wilson(0.81, 120)
    assert low == pytest.approx(0.7309, abs=5e-4)
    assert high == pytest.approx(0.8702, abs=5e-4)
    assert trainview.wilson(0.0, 10)[0] == 0.0
    assert trainview.wilson(1.0, 10)[1] == pytest.approx(1.0)


def told(*fitness: tuple[float, ...], **more: Any) -> Record:
    made = tuple(
        Generation(job_id="j", seq=n, at=0.0, number=n, fitness=row, sigma=0.5**n, evaluations=64, **more)
        for n, row in enumerate(fitness)
    )
    return Record("job-1", "evolve", "running", plan=Plan(evaluations=640).to_json(), generations=made, since=0.0)


def test_the_fitness_figure_is_right_and_leaves_out_what_is_not_finite() -> None:
    record = told((0.1, 0.2, 0.3, 0.4), (0.3, math.nan, 0.1, 0.2), (math.nan,) * 4)
    value = trainplots.fitness(record)
    json.dumps(value, allow_nan=False)
    by_name = {trace["name"]: trace for trace in value["figure"]["data"]}
    assert by_name["best so far"]["y"] == [0.4, 0.4, 0.4]
    assert by_name["mean"]["y"] == [pytest.approx(0.25), pytest.approx(0.2), None]
    assert by_name["25 %"]["y"] == [pytest.approx(0.175), pytest.approx(0.15), None]
    assert by_name["middle half"]["y"] == [pytest.approx(0.325), pytest.approx(0.25), None]
    assert by_name["middle half"]["fill"] == "tonexty"


def test_validation_has_intervals_and_baselines_are_dashed() -> None:
    held = [
        Validation(job_id="j", seq=0, at=0, name=name, n=40, accuracy=0.5, low=0.4, high=0.7, number=number)
        for name, number in (("random policy", None), ("single <b>x</b>", None), ("validation", 1), ("final", 1))
    ]
    record = told((0.1, 0.2), (0.2, 0.3))
    record = Record(**{**{f: getattr(record, f) for f in Record.__dataclass_fields__}, "validations": tuple(held)})
    by_name = {trace["name"]: trace for trace in trainplots.fitness(record)["figure"]["data"]}
    assert by_name["random policy"]["line"]["dash"] == "dash"
    assert by_name["random policy"]["y"] == [0.5, 0.5]
    assert "single &lt;b&gt;x&lt;/b&gt;" in by_name
    points = by_name["validation"]
    assert (points["x"], points["y"]) == ([1], [0.5])
    assert points["error_y"]["array"] == [pytest.approx(0.2)]
    assert points["error_y"]["arrayminus"] == [pytest.approx(0.1)]
    assert by_name["final"]["marker"]["symbol"] == "star"


def test_the_step_size_is_on_a_log_axis_with_the_spread() -> None:
    value = trainplots.sigma(told((0.1,), (0.2,), spread=(2.0, 0.1)))
    assert value["figure"]["layout"]["yaxis"]["type"] == "log"
    assert [trace["y"] for trace in value["figure"]["data"]] == [[1.0, 0.5], [2.0, 2.0], [0.1, 0.1]]
    assert trainplots.sigma(Record("j", "sft", "running"))["figure"] is None


def test_shares_are_stacked_and_candidates_are_the_last_twenty_generations() -> None:
    record = told(*[(0.1 * n, 0.1 * n + 0.05) for n in range(30)], agent_shares={"a": 0.25, "b": 0.75})
    data = trainplots.shares(record, "agent")["figure"]["data"]
    assert [(trace["name"], trace["stackgroup"], trace["y"][0]) for trace in data] == [
        ("a", "one", 0.25),
        ("b", "one", 0.75),
    ]
    (dots,) = trainplots.candidates(record)["figure"]["data"]
    assert len(dots["x"]) == 40
    assert {round(x) for x in dots["x"]} == set(range(10, 30))
    assert dots["marker"]["size"] == [5, 9] * 20


def test_at_most_five_trainings_share_a_plot() -> None:
    one = told((0.1,), (0.2,))
    figure = trainplots.fitness(one, [one] * 9)["figure"]
    assert sum("best" in trace["name"] and trace["name"] != "best so far" for trace in figure["data"]) == 4


def test_the_status_line_tells_generations_money_and_time_left() -> None:
    record = told((0.1,), (0.2,), agent_calls=10, failed_calls=1, cost=0.5)
    progress = Progress(job_id="j", seq=0, at=0, done=3, total=9, unit="tasks", message="<i>Playing</i>")
    record = Record(**{**{f: getattr(record, f) for f in Record.__dataclass_fields__}, "progress": progress})
    line = trainview.status(TrainingStatus("running"), record, True, at=20.0)
    for words in ("generation 2 of 10", "128 of 640 evaluations", "20 calls made, 2 failed", "$1.0000",
                  "about 80 s left", "&lt;i&gt;Playing&lt;/i&gt;: 3 of 9 tasks"):  # fmt: skip
        assert words in line
    assert 'data-running="1"' in line
    assert "watch but not steer" in trainview.status(TrainingStatus("running"), record, False, at=20.0)


def test_the_pace_after_a_resume_is_that_of_now() -> None:
    record = told(*[(0.1,)] * 8)
    values = {f: getattr(record, f) for f in Record.__dataclass_fields__}
    assert trainview.eta(Record(**values), 10.0) == pytest.approx(2.5)  # 8 of 10 in 10 s
    assert trainview.eta(Record(**(values | {"resumed_at": 7})), 10.0) == pytest.approx(20.0)  # 1 in 10 s
    assert trainview.eta(Record(**(values | {"resumed_at": 8})), 10.0) is None


def test_the_preflight_says_unknown_cost_and_keeps_text_as_text() -> None:
    found = Preflight(("No <tasks>.",), ("Few.",), 0, 0, {"<x>": 3}, 10, 8, 2, 100, 50, 1000, None, 7200.0)
    shown = trainview.preflight(found)
    assert 'data-ready="0"' in shown
    assert "No &lt;tasks&gt;." in shown
    assert "&lt;x&gt; 3" in shown
    assert "<td>unknown</td>" in shown
    assert "2 h 0 min" in shown


def test_deploy_says_what_it_replaces_and_revert_goes_back(manager: TrainingManager, tmp_path: Path) -> None:
    settings = Settings.load(home=tmp_path / "home")
    fitted = threading.Event()
    handlers = Handlers(SimpleNamespace(settings=settings, refit=fitted.set), manager)
    with pytest.raises(InputError, match="no training to choose"):
        handlers._deploy(None)
    job = begin(manager, owner=None)
    ended(manager)
    with pytest.raises(InputError, match="is missing"):
        handlers._deploy(job)
    record = manager.record(job)
    assert record is not None
    assert record.checkpoint_id is not None
    settings.checkpoints.mkdir(exist_ok=True)
    (settings.checkpoints / f"{record.checkpoint_id}.safetensors").touch()
    assert "replaced the head that came with Trinity" in handlers._deploy(job)
    assert deployed_id(settings) == record.checkpoint_id
    assert fitted.is_set()
    assert "In use again: the head that came with Trinity." in handlers._revert()
    assert deployed_id(settings) is None
    screen = handlers.screen("bob", None, ())
    assert "Not comparable" in screen[7]
    assert screen[-1]["interactive"] if isinstance(screen[-1], dict) else screen[-1].interactive


def test_a_tick_without_change_sends_nothing(manager: TrainingManager, tmp_path: Path) -> None:
    handlers = Handlers(SimpleNamespace(settings=Settings.load(home=tmp_path / "home"), refit=lambda: None), manager)
    before = handlers._key(None, ())
    assert handlers._key(None, ()) == before
    begin(manager)
    assert handlers._key(None, ()) != before
    ended(manager)
    after = handlers._key(None, ())
    assert handlers._key(None, ("other",)) != after
    assert handlers._key(None, ()) == after
