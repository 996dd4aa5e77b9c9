"""Optimisers of theta: what a seed fixes, what bad fitness does, and that they learn.

The learned tests compare two optimisers at the same budget on fixed seeds; nothing here needs a model.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from trinity_core.errors import CheckpointError, InputError, TrinityError
from trinity_core.training.evolve import SepCMA, replay
from trinity_core.training.optimisers import AskTell, Optimiser, generator, is_flat
from trinity_core.training.search import RandomSearch, Reinforce, policy_gradient

Array = NDArray[np.float64]
LARGE = 19_456
ROOT = Path(__file__).resolve().parent.parent

BOTH: list[Callable[[int], AskTell]] = [
    lambda seed: SepCMA(np.zeros(12), 0.5, seed, 8),
    lambda seed: RandomSearch(12, seed, 8),
]
both = pytest.mark.parametrize("make", BOTH, ids=["sep-CMA-ES", "random"])


def sphere(candidates: Array, centre: float = 0.3) -> list[float]:
    return [-float(np.sum((x - centre) ** 2)) for x in candidates]


def evolve(optimiser: AskTell, generations: int) -> list[list[float]]:
    told = []
    for _ in range(generations):
        told.append(sphere(optimiser.ask()))
        optimiser.tell(told[-1])
    return told


def global_state() -> bytes:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return str((kind, np.asarray(keys).tobytes(), rest)).encode()


# --- Seeds ---------------------------------------------------------------------------------------------------


@both
def test_a_seed_fixes_the_candidates_and_zero_is_a_seed_like_any_other(make: Callable[[int], AskTell]) -> None:
    first = {seed: make(seed).ask() for seed in (0, 1, 2**32, 2**63)}
    for seed, candidates in first.items():
        assert np.array_equal(make(seed).ask(), candidates), seed
    distinct = {candidates.tobytes() for candidates in first.values()}
    assert len(distinct) == len(first)


@both
@pytest.mark.parametrize("seed", [-1, 1.5, True, None, "7"])
def test_what_is_no_seed_is_refused(make: Callable[[int], AskTell], seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        make(seed)  # type: ignore[arg-type]


def test_optimisers_of_one_seed_share_no_numbers() -> None:
    draws = {generator(3, *purpose).random(4).tobytes() for purpose in [(1,), (2,), (3, 0), (3, 1)]}
    assert len(draws) == 4


@pytest.mark.parametrize("n", [40, 400])
def test_the_global_generator_is_neither_read_nor_changed(n: int) -> None:
    """From 300 parameters on pycma adapts sigma in another way, which by itself draws from the global generator."""

    def run(disturb: bool) -> Array:
        ours = SepCMA(np.zeros(n), 0.5, 4)
        other = SepCMA(np.ones(n), 0.1, 9)
        for generation in range(7):
            if disturb:
                np.random.seed(generation)
                evolve(other, 1)
            before = global_state()
            evolve(ours, 1)
            assert global_state() == before
        return ours.centre

    assert np.array_equal(run(False), run(True))


# --- Resume --------------------------------------------------------------------------------------------------


def test_six_generations_equal_three_replayed_and_three_more_bit_for_bit() -> None:
    def make(seed: int) -> SepCMA:
        return SepCMA(np.linspace(-1, 1, LARGE), 0.2, seed)

    whole = make(0)
    told = evolve(whole, 6)
    resumed, beside = make(0), make(1)
    for fitness in told[:3]:  # another training in the same process, generation by generation
        replay(resumed, json.loads(json.dumps([fitness])))
        evolve(beside, 1)
    evolve(beside, 1)
    again = evolve(resumed, 3)
    assert again == told[3:]
    assert np.array_equal(resumed.centre, whole.centre)
    assert resumed.centre.tobytes() == whole.centre.tobytes()
    assert (resumed.sigma, resumed.spread) == (whole.sigma, whole.spread)
    assert not np.array_equal(beside.centre, whole.centre)


def test_replay_holds_with_ties_and_failed_candidates_and_in_another_process() -> None:
    program = (
        "import numpy as np\n"
        "from trinity_core.training.evolve import SepCMA, replay\n"
        "told = [[1, 1, 0, None, 0, 1, 1, float('nan')], [None] * 8, [0.0] * 8, [1, 0, 1, 0, 0, 0, 0, 1]] * 3\n"
        "one = SepCMA(np.zeros(400), 1.0, 0, 8)\n"
        "replay(one, told)\n"
        "print(one.centre.tobytes().hex(), one.ask().tobytes().hex())\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": salt, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            check=True,
        ).stdout
        for salt, threads in [("1", "1"), ("2", "2")]
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0]


def test_trainings_in_threads_do_not_touch_each_other() -> None:
    def make(seed: int) -> SepCMA:
        return SepCMA(np.zeros(500), 0.5, seed)

    expected = {}
    for seed in range(4):
        evolve(alone := make(seed), 5)
        expected[seed] = alone.centre.tobytes()
    together = {seed: make(seed) for seed in expected}
    threads = [threading.Thread(target=evolve, args=(one, 5)) for one in together.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {seed: one.centre.tobytes() for seed, one in together.items()} == expected


# --- Settings ------------------------------------------------------------------------------------------------


def test_population_is_rounded_up_and_the_better_half_are_parents() -> None:
    one = SepCMA(np.zeros(13_312), 1.0, 0)
    assert (one.population, one.parents, one.ask().shape) == (33, 16, (33, 13_312))
    assert one.sigma == 1.0
    assert one.spread == pytest.approx((1.0, 1.0))
    assert not np.any(one.centre)


@pytest.mark.parametrize("population", [4, 5, 6, 7, 33, 34])
def test_only_the_better_half_moves_the_mean(population: int) -> None:
    one = SepCMA(np.zeros(60), 1.0, 2, population)
    fitness = [float(-i) for i in range(population)]
    candidates = one.ask().copy()
    one.tell(fitness)
    weights, *_ = np.linalg.lstsq(candidates.T, one.centre, rcond=None)
    assert np.sum(weights > 1e-9) == population // 2 == one.parents
    assert np.all(np.diff(weights[: one.parents]) < 0)
    assert np.allclose(weights[one.parents :], 0, atol=1e-9)
    assert weights.sum() == pytest.approx(1)


def test_the_covariance_is_diagonal_whatever_the_generation() -> None:
    """Coordinates adapt each for itself: 3,000 of them take memory and time for a diagonal alone."""
    one = SepCMA(np.zeros(3_000), 1.0, 0)
    evolve(one, 4)
    arrays = [value for value in vars(one._es.sm).values() if isinstance(value, np.ndarray)]
    assert max((a.size for a in arrays), default=0) <= 3_000
    assert one._es.sigma_vec.scaling.shape == (3_000,)
    largest, smallest = one.spread
    assert largest > one.sigma > smallest > 0


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_step_size_that_cannot_be_is_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma"):
        SepCMA(np.zeros(5), sigma, 0)


@pytest.mark.parametrize("x0", [[], [math.nan, 0.0], [0.0, math.inf], [[0.0, 1.0]], 3.0])
def test_a_start_that_cannot_be_is_refused(x0: object) -> None:
    with pytest.raises(InputError):
        SepCMA(x0, 1.0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("population", [0, 1, 3, -5, 10_001, 7.5])
def test_a_population_that_cannot_be_is_refused(population: int) -> None:
    for make in (lambda: SepCMA(np.zeros(5), 1.0, 0, population), lambda: RandomSearch(5, 0, population)):
        with pytest.raises(InputError, match="population"):
            make()


def test_the_start_is_copied() -> None:
    x0 = np.zeros(6, np.float32)
    one, twin = SepCMA(x0, 1.0, 0), SepCMA(np.zeros(6), 1.0, 0)
    x0 += 100
    one.centre[:] = 100
    assert np.array_equal(one.ask(), twin.ask())
    assert not np.any(one.centre)


# --- Asking and telling --------------------------------------------------------------------------------------


@both
def test_asking_twice_gives_the_same_candidates_and_telling_gives_new_ones(make: Callable[[int], AskTell]) -> None:
    one = make(0)
    first = one.ask()
    assert np.array_equal(one.ask(), first)
    assert first.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1.0
    assert one.tell(sphere(first)) == ""
    assert not np.array_equal(one.ask(), first)


@both
@pytest.mark.parametrize("wrong", [[], [1.0] * 7, [1.0] * 9, [1.0] * 7 + ["x"], [[1.0, 2.0]] * 8, [10**400] * 8])
def test_wrong_fitness_is_refused_and_changes_nothing(make: Callable[[int], AskTell], wrong: list[float]) -> None:
    one, twin = make(5), make(5)
    with pytest.raises(ValueError, match="before"):
        one.tell([1.0] * 8)
    one.ask()
    with pytest.raises(ValueError, match=r"8 candidates|not a number"):
        one.tell(wrong)
    evolve(one, 2)
    with pytest.raises(ValueError, match="before"):
        one.tell([1.0] * 8)  # twice
    evolve(twin, 2)
    assert np.array_equal(one.ask(), twin.ask())
    assert np.array_equal(one.centre, twin.centre)


@both
def test_any_kind_of_number_says_the_same(make: Callable[[int], AskTell]) -> None:
    centres = []
    values = [3, 1, 0, 2, 7, 4, 5, 6]
    for fitness in (values, [float(v) for v in values], np.array(values, np.float32), np.array(values)):
        one = make(1)
        one.ask()
        one.tell(fitness)  # type: ignore[arg-type]
        centres.append(one.centre.tobytes())
    assert len(set(centres)) == 1


def test_it_conforms_to_the_protocol() -> None:
    for one in (SepCMA(np.zeros(3), 1.0, 0), RandomSearch(3, 0)):
        optimiser: Optimiser = one
        assert optimiser.name
        assert optimiser.size == 3
        assert (optimiser.sigma is None) == (optimiser.spread is None)


# --- What fitness means --------------------------------------------------------------------------------------


def test_more_is_better() -> None:
    """What reaches pycma, which minimises: the reward with its sign turned, so the right answer ranks first."""
    one = SepCMA(np.zeros(4), 1.0, 0, 4)
    told: list[list[float]] = []
    tell = one._es.tell

    def spy(solutions: list[Array], losses: list[float]) -> None:
        told.append(list(losses))
        tell(solutions, losses)

    one._es.tell = spy
    candidates = one.ask()
    one.tell([0.25, 1.0, 0.0, 0.5])
    assert told == [[-0.25, -1.0, 0.0, -0.5]]
    assert np.linalg.norm(one.centre - candidates[1]) < np.linalg.norm(one.centre - candidates[0])


@pytest.mark.parametrize("bad", [math.nan, None, math.inf, -math.inf])
def test_a_failed_candidate_ranks_last(bad: float | None) -> None:
    def after(value: float | None) -> Array:
        one = SepCMA(np.zeros(30), 1.0, 3, 6)
        one.ask()
        assert one.tell([1.0, 0.5, value, 0.0, 0.25, 0.75]) == ""
        return one.centre

    # Its rank is that of a value below all others, not that of the median.
    assert np.array_equal(after(bad), after(-1e6))
    assert not np.array_equal(after(bad), after(0.5001))


@pytest.mark.parametrize("bad", [math.nan, None, math.inf])
def test_random_search_never_takes_a_failed_candidate(bad: float | None) -> None:
    one = RandomSearch(5, 0, 4)
    candidates = one.ask()
    one.tell([bad, -3.0, -2.0, -2.0])
    assert np.array_equal(one.centre, candidates[2])  # the first of equal ones
    assert one.best_fitness == -2.0
    one.ask()
    one.tell([-2.0, bad, -9.0, -9.0])
    assert np.array_equal(one.centre, candidates[2])
    better = one.ask()
    one.tell([-5.0, -1.0, -1.0, -9.0])
    assert np.array_equal(one.centre, better[1])


@both
def test_a_generation_that_failed_whole_teaches_nothing(make: Callable[[int], AskTell]) -> None:
    one = make(2)
    evolve(one, 2)
    centre, candidates = one.centre, one.ask()
    for bad in (math.nan, None, math.inf):
        assert one.tell([bad] * 8) == "flat_fitness"
        assert np.array_equal(one.centre, centre)
        assert np.array_equal(one.ask(), candidates)
    assert one.tell(sphere(candidates)) == ""


def test_equal_fitness_is_called_flat_and_never_ends_a_training() -> None:
    one = SepCMA(np.zeros(20), 0.5, 0, 6)
    for _ in range(12):
        one.ask()
        assert one.tell([0, 0, 0, 0, 0, 0]) == "flat_fitness"
    before = sphere(one.centre[None])[0]
    evolve(one, 60)  # it goes on learning afterwards
    assert sphere(one.centre[None])[0] > before / 10


@pytest.mark.parametrize(
    ("fitness", "flat"),
    [
        ([1, 1, 1, 1, 1, 1, 1, 0], True),  # seven of eight are as good as the best
        ([1, 1, 1, 1, 1, 1, 1, math.nan], True),
        ([1, 0, 0, 0, 0, 0, 0, 0], False),  # one is better: that is what selection is for
        ([1, 1, 1, 0, 0, 0, 0, 0], False),
        ([0.5, 0.5 + 1e-13, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], True),
        ([0.5, 0.5 + 1e-9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], False),
        ([math.inf] * 8, True),
        ([1, math.inf, math.inf, math.inf, math.inf, math.nan, math.nan, math.nan], False),
    ],
)
def test_what_flat_is(fitness: list[float], flat: bool) -> None:
    assert is_flat(np.array(fitness, dtype=float)) is flat
    for one in (SepCMA(np.zeros(9), 1.0, 0, 8), RandomSearch(9, 0, 8)):
        for _ in range(2):
            one.ask()
            assert one.tell(fitness) == ("flat_fitness" if flat else "")


def test_a_plateau_is_walked_at_random_and_not_along_one_line() -> None:
    """With equal fitness in ask order the sample on the last step always wins, and steps have a cosine of 0.25."""
    n = 2_016
    one = SepCMA(np.zeros(n), 1.0, 0)
    steps = []
    for _ in range(40):
        before = one.centre
        one.ask()
        one.tell([0.5] * one.population)
        steps.append(one.centre - before)
    unit = [step / np.linalg.norm(step) for step in steps]
    assert abs(np.mean([a @ b for a, b in itertools.pairwise(unit)])) < 0.12
    assert np.linalg.norm(one.centre) > 1.0  # but it does move
    assert one.sigma == pytest.approx(1.0)


# --- Corners -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 299, 300])
def test_any_number_of_parameters_works_without_a_word(
    n: int, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = SepCMA(np.zeros(n), 0.5, 0)
        for generation in range(12):
            fitness: list[float | None] = list(sphere(one.ask()))
            if generation % 3 == 0:
                fitness[0] = None
            one.tell(fitness)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert np.isfinite(one.centre).all()


@pytest.mark.parametrize("n", [1, 5, 301])
def test_fitness_without_a_maximum_overflows_nothing(n: int) -> None:
    one = SepCMA(np.zeros(n), 1e5, 0, 4)
    for _ in range(700):
        one.tell([float(x.sum()) for x in one.ask()])
    assert np.isfinite(one.centre).all()
    assert one.centre.sum() > 1e5
    assert math.isfinite(one.sigma)
    assert all(math.isfinite(s) for s in one.spread)


def test_a_step_size_that_ran_off_is_said_in_words() -> None:
    one = SepCMA(np.zeros(3), 1.0, 0, 4)
    one._es.sigma = math.inf
    with pytest.raises(TrinityError, match="smaller sigma"):
        one.ask()


def test_extreme_fitness_is_still_a_ranking() -> None:
    one, twin = SepCMA(np.zeros(9), 1.0, 0, 6), SepCMA(np.zeros(9), 1.0, 0, 6)
    for _ in range(3):
        assert np.array_equal(one.ask(), twin.ask())
        assert one.tell([1.7e308, -1.7e308, 1e-320, 0.0, 5.0, math.nan]) == ""
        twin.tell([5, -5, 1, 0, 2, -6])
    assert np.array_equal(one.centre, twin.centre)


# --- Learning ------------------------------------------------------------------------------------------------


Problem = tuple[int, Callable[[Array, np.random.Generator], float], Callable[[Array], float]]
"""n, the noisy fitness that training sees, and what theta is worth."""


def _noisy_quadratic(seed: int) -> Problem:
    goal = np.random.default_rng([seed, 11]).uniform(-0.5, 0.5, 20)

    def exact(x: Array) -> float:
        return -float(np.sum((x - goal) ** 2))

    return 20, lambda x, rng: exact(x) + 0.1 * float(rng.standard_normal()), exact


def _classification(seed: int) -> Problem:
    rng = np.random.default_rng([seed, 12])
    d, classes = 100, 4
    kinds = rng.standard_normal((classes * 2, d))
    of = rng.integers(len(kinds), size=600)
    x = (kinds[of] + rng.standard_normal((600, d))) / math.sqrt(d)
    y = of % classes

    def accuracy(theta: Array, rows: NDArray[np.int_]) -> float:
        z = x[rows] @ theta.reshape(classes, d).T
        p = np.exp(z - z.max(axis=1, keepdims=True))
        return float((p[np.arange(len(rows)), y[rows]] / p.sum(axis=1)).mean())

    train, held = np.arange(400), np.arange(400, 600)
    return classes * d, lambda t, rng: accuracy(t, rng.choice(train, 16)), lambda t: accuracy(t, held)


@pytest.mark.parametrize("problem", [_noisy_quadratic, _classification])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sep_cma_beats_random_search_at_the_same_budget(problem: Callable[[int], Problem], seed: int) -> None:
    n, noisy, exact = problem(seed)

    def learn(one: AskTell) -> float:
        rng = np.random.default_rng([seed, 13])
        for _ in range(50):
            one.tell([noisy(x, rng) for x in one.ask()])
        return float(exact(one.centre))

    start = exact(np.zeros(n))
    evolved = learn(SepCMA(np.zeros(n), 0.3, seed, 20))
    searched = learn(RandomSearch(n, seed, 20))
    # Of what is to be gained (both problems end near 0 or 1), evolution gains most and random search far less.
    best = 0.0 if start < 0 else 1.0
    assert (evolved - start) / (best - start) > 0.5
    assert evolved - start > 1.5 * (searched - start)


# --- REINFORCE -----------------------------------------------------------------------------------------------


def _log_policy(
    weight: Array,
    x: Array,
    agents: NDArray[np.int64],
    roles: NDArray[np.int64],
    masks: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    gain: Array,
) -> float:
    total, count = 0.0, masks[0].shape[1]
    for i in range(len(x)):
        z = weight @ x[i]
        for part, mask, index in ((z[:count], masks[0][i], agents[i]), (z[count:], masks[1][i], roles[i])):
            allowed = [part[j] for j in range(len(part)) if mask[j]]
            total += gain[i] * (part[int(index)] - math.log(sum(math.exp(v) for v in allowed)))
    return total


@pytest.mark.parametrize("agents", [1, 4])
def test_the_policy_gradient_equals_finite_differences(agents: int) -> None:
    rng = np.random.default_rng(0)
    m, d = 9, 5
    weight, x, gain = rng.standard_normal((agents + 3, d)), rng.standard_normal((m, d)), rng.standard_normal(m)
    masks = (rng.random((m, agents)) < 0.6, rng.random((m, 3)) < 0.6)
    chosen, roles = (rng.integers(mask.shape[1], size=m) for mask in masks)
    for mask, choice in zip(masks, (chosen, roles), strict=True):
        mask[np.arange(m), choice] = True
    exact = policy_gradient(weight, x, chosen, roles, *masks, gain)
    assert exact.shape == weight.shape
    assert exact.dtype == np.float64
    numeric = np.zeros_like(weight)
    for at in np.ndindex(*weight.shape):
        step = np.zeros_like(weight)
        step[at] = 1e-6
        up, down = (_log_policy(weight + s * step, x, chosen, roles, masks, gain) for s in (1, -1))
        numeric[at] = (up - down) / 2e-6
    assert np.allclose(exact, numeric, atol=1e-7)
    assert np.abs(exact).max() > 0.1


def test_a_masked_row_and_a_forced_choice_have_no_gradient() -> None:
    weight, x = np.ones((5, 3)), np.full((1, 3), 2.0)
    gradient = policy_gradient(weight, x, [1], [0], [[False, True]], [[True, True, False]], [1.0])
    assert not gradient[:2].any()
    assert not gradient[4].any()
    assert gradient[2:4].any()


def test_the_gradient_survives_extreme_logits_and_an_empty_batch() -> None:
    x = np.array([[1.0], [-1.0]])
    weight = np.array([[1e4], [-1e4], [0.0], [1e4], [-1e4]])
    open_ = np.ones((2, 2), bool), np.ones((2, 3), bool)
    assert np.isfinite(policy_gradient(weight, x, [0, 0], [0, 1], *open_, [1.0, -1.0])).all()
    nothing = policy_gradient(weight, np.zeros((0, 1)), [], [], np.zeros((0, 2)), np.zeros((0, 3)), [])
    assert nothing.shape == weight.shape
    assert not nothing.any()


@pytest.mark.parametrize(
    "change",
    [
        {"agents": [0, 1]},  # masked for the second
        {"agents": [0, 2]},
        {"agents": [0, -1]},
        {"agents": [0.0, 0.0]},
        {"roles": [0]},
        {"advantages": [1.0]},
        {"agent_mask": [[True, True]]},
        {"role_mask": [[True, True]] * 2},
        {"x": [[1.0, 2.0]] * 2},
        {"weight": np.zeros((3, 1))},
    ],
)
def test_a_batch_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    batch: dict[str, object] = {
        "weight": np.zeros((5, 1)),
        "x": [[1.0], [2.0]],
        "agents": [0, 0],
        "roles": [0, 2],
        "agent_mask": [[True, True], [True, False]],
        "role_mask": [[True, True, True]] * 2,
        "advantages": [1.0, 1.0],
    }
    policy_gradient(**batch)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"fit|masked|must be"):
        policy_gradient(**{**batch, **change})  # type: ignore[arg-type]


def test_adam_takes_the_steps_of_its_paper() -> None:
    one = Reinforce(2, 0, learning_rate=0.1)
    one.step([1.0, -4.0])
    assert one.theta == pytest.approx([0.1, -0.1])  # the rate, whatever the scale
    one.step([0.0, -4.0])
    first, second = (0.9 * 0.1) / (1 - 0.9**2), (0.999 * 0.001) / (1 - 0.999**2)
    assert one.theta == pytest.approx([0.1 + 0.1 * first / math.sqrt(second), -0.2])
    assert one.steps == 2


def test_the_baseline_follows_the_rewards_and_failed_runs_count_for_nothing() -> None:
    one = Reinforce(3, 0, baseline=0.5)
    assert list(one.advantages([1.0, 0.0, None])) == [0.5, -0.5, 0.0]
    assert one.mean_reward == 0.5
    assert list(one.advantages([1, math.nan, 1])) == [0.5, 0.0, 0.5]
    assert one.mean_reward == 0.75
    assert list(one.advantages([math.nan, math.inf])) == [0.0, 0.0]
    assert one.mean_reward == 0.75


def _bandit(one: Reinforce, steps: int) -> float:
    """Agent and role to be read off the features; the chance of the right choice, over the batches of `steps`."""
    d, right = 6, []
    for _ in range(steps):
        rng = one.generator()
        x = rng.standard_normal((64, d))
        p = []
        logits = x @ one.theta.reshape(5, d).T
        for part in (logits[:, :2], logits[:, 2:]):
            e = np.exp(part - part.max(axis=1, keepdims=True))
            p.append(e / e.sum(axis=1, keepdims=True))
        agents = (rng.random(64) > p[0][:, 0]).astype(int)
        roles = (rng.random((64, 1)) > np.cumsum(p[1], axis=1)[:, :2]).sum(axis=1)
        rewards = (agents == (x[:, 0] > 0)) & (roles == (x[:, 1] > 0))
        gain = one.advantages([float(r) for r in rewards])
        masks = np.ones((64, 2), bool), np.ones((64, 3), bool)
        one.step(policy_gradient(one.theta.reshape(5, d), x, agents, roles, *masks, gain).ravel() / 64)
        right.append(float(rewards.mean()))
    return float(np.mean(right[-10:]))


def test_reinforce_learns_and_resumes_bit_for_bit() -> None:
    whole = Reinforce(30, 0, learning_rate=0.1)
    early = _bandit(whole, 10)
    state = whole.state()
    late = _bandit(whole, 90)
    assert early < 0.5
    assert late > 0.8
    resumed = Reinforce(30, 99, learning_rate=7.0, baseline=0.1)
    resumed.restore(state)
    assert resumed.state() == state
    _bandit(resumed, 90)
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    assert resumed.state() == whole.state()


def test_a_damaged_state_is_refused_and_changes_nothing() -> None:
    one = Reinforce(4, 0)
    one.step([1.0, 2.0, 3.0, 4.0])
    good = one.state()
    other, broken = Reinforce(5, 0), Reinforce(4, 0)
    broken._second[0] = math.nan
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    for bad in (b"", b"PK", good[:-40], good[: len(good) // 2], bytes(flipped), other.state(), broken.state()):
        with pytest.raises(CheckpointError, match="REINFORCE"):
            one.restore(bad)
        assert one.state() == good


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 0},
        {"seed": -1},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"baseline": 1.0},
        {"baseline": math.nan},
        {"x0": [0.0]},
        {"x0": [0.0, math.nan]},
    ],
)
def test_reinforce_settings_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Reinforce(**{"size": 2, "seed": 0, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("gradient", [[1.0], [[1.0, 2.0]], [1.0, math.nan], [math.inf, 0.0]])
def test_a_gradient_that_cannot_be_is_refused(gradient: list[float]) -> None:
    one = Reinforce(2, 0)
    before = one.state()
    with pytest.raises(ValueError, match="2 finite numbers"):
        one.step(gradient)
    assert one.state() == before
