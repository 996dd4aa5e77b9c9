"""What the paper compares sep-CMA-ES with: random search, and REINFORCE (section 4, baselines).

`RandomSearch` is an `Optimiser`. REINFORCE is not: it needs trajectories, and takes a gradient instead of fitness.
Sampling the trajectories (batch = λ · tasks) is the trainer's business; `Reinforce` holds theta, Adam's moments
(Kingma and Ba, 2015) and the baseline, and can be stored and restored exactly. Linear heads only.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trinity_core.errors import CheckpointError, InputError
from trinity_core.training.optimisers import Array, AskTell, generator, numbers, start_vector
from trinity_core.types import Role

HALF_WIDTH = 0.5
"""Random search draws each coordinate from U[-0.5, 0.5] (paper, section 4)."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
_SEARCH, _REINFORCE = 2, 3
_VECTORS = ("theta", "first", "second")


class RandomSearch(AskTell):
    """Independent candidates from U[-0.5, 0.5]^n; the best so far is what counts."""

    name = "random search"
    sigma: float | None = None
    spread: tuple[float, float] | None = None

    def __init__(self, size: int, seed: int, population: int | None = None) -> None:
        """`population` None means λ = ⌈4 + 3 ln n⌉. Raises InputError as `SepCMA` does."""
        super().__init__(size, population)
        self._rng = generator(seed, _SEARCH)
        self._best: Array = np.zeros(self.size)
        self._best_fitness = -math.inf

    @property
    def centre(self) -> Array:
        """The candidate of the highest fitness told so far, the first of equal ones; 0 before (n,), a copy.

        Fitness of different generations is compared as it is, although their tasks may differ.
        """
        with self._lock:
            return self._best.copy()

    @property
    def best_fitness(self) -> float:
        """The fitness told for `centre`; -inf before any."""
        return self._best_fitness

    def _sample(self) -> Array:
        return self._rng.uniform(-HALF_WIDTH, HALF_WIDTH, (self.population, self.size))

    def _learn(self, candidates: Array, fitness: Array) -> None:
        ranked = np.where(np.isfinite(fitness), fitness, -np.inf)
        first = int(np.argmax(ranked))
        if ranked[first] > self._best_fitness:
            self._best, self._best_fitness = candidates[first].copy(), float(ranked[first])


class Reinforce:
    """Gradient ascent on E[R] by Adam, with a running mean of the reward as baseline (Williams, 1992).

    One step: sample a batch with `generator()`, take `advantages(rewards)`, sum `policy_gradient` over the batch,
    divide by the number of runs, `step`. `baseline` is the running mean's decay in [0, 1); 0 means the last batch.
    """

    name = "REINFORCE"

    def __init__(
        self,
        size: int,
        seed: int,
        *,
        learning_rate: float = 0.01,
        baseline: float = 0.9,
        x0: ArrayLike | None = None,
    ) -> None:
        """Start at `x0` (n,), zeros without (a linear head then decides uniformly).

        Raises InputError for a size below 1, a start that is not finite or not (n,), a learning rate not above 0, a
        decay outside [0, 1) and a negative seed.
        """
        if size < 1:
            raise InputError("There is nothing to train: theta has no parameters.")
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise InputError(f"The learning rate is {learning_rate}; it must be a finite number above 0.")
        if not 0 <= baseline < 1:
            raise InputError(f"The baseline's decay is {baseline}; it must be at least 0 and below 1.")
        self._theta = np.zeros(size) if x0 is None else start_vector(x0)
        if self._theta.shape != (size,):
            raise InputError(f"The start of the training has {len(self._theta)} parameters, not {size}.")
        generator(seed, _REINFORCE)
        self._seed, self._rate, self._decay = int(seed), float(learning_rate), float(baseline)
        self._first, self._second = np.zeros(size), np.zeros(size)
        self._steps = 0
        self._mean: float | None = None

    @property
    def size(self) -> int:
        """n, the length of theta."""
        return len(self._theta)

    @property
    def theta(self) -> Array:
        """θ (n,) float64, a copy."""
        return self._theta.copy()

    @property
    def steps(self) -> int:
        """Steps taken."""
        return self._steps

    @property
    def mean_reward(self) -> float | None:
        """The baseline: the running mean of the batches' mean rewards; None before the first."""
        return self._mean

    def generator(self) -> np.random.Generator:
        """The generator for the batch of the next step: a function of (seed, steps taken), so it needs no state."""
        return generator(self._seed, _REINFORCE, self._steps)

    def advantages(self, rewards: Sequence[float | None]) -> Array:
        """Reward less baseline (m,), then move the baseline to these rewards. The first batch is its own baseline.

        A reward that is not finite (a failed run) has the advantage 0 and moves nothing.
        """
        values = numbers(rewards)
        known = np.isfinite(values)
        if not known.any():
            return np.zeros(len(values))
        mean = float(values[known].mean())
        base = mean if self._mean is None else self._mean
        self._mean = mean if self._mean is None else self._decay * self._mean + (1 - self._decay) * mean
        return np.where(known, values - base, 0.0)

    def step(self, gradient: ArrayLike) -> None:
        """Move theta up `gradient` (n,) of the expected reward. Raises ValueError unless it is finite and (n,)."""
        g = np.asarray(gradient, dtype=np.float64)
        if g.shape != self._theta.shape or not np.isfinite(g).all():
            raise ValueError(f"A gradient must be {self.size} finite numbers.")
        self._steps += 1
        self._first = BETAS[0] * self._first + (1 - BETAS[0]) * g
        self._second = BETAS[1] * self._second + (1 - BETAS[1]) * g * g
        first = self._first / (1 - BETAS[0] ** self._steps)
        second = self._second / (1 - BETAS[1] ** self._steps)
        self._theta = self._theta + self._rate * first / (np.sqrt(second) + EPSILON)

    def state(self) -> bytes:
        """Everything, as an npz archive without pickles; equal states give equal bytes."""
        settings = {
            "seed": self._seed,
            "learning_rate": self._rate,
            "baseline": self._decay,
            "steps": self._steps,
            "mean": self._mean,
        }
        file = io.BytesIO()
        np.savez(
            file,
            settings=np.frombuffer(json.dumps(settings).encode(), np.uint8),
            theta=self._theta,
            first=self._first,
            second=self._second,
        )
        return file.getvalue()

    def restore(self, state: bytes) -> None:
        """Become what `state` was taken from, bit for bit, settings included.

        Raises CheckpointError, and stays as it is, for bytes that are damaged, not finite or of another size.
        """
        try:
            with np.load(io.BytesIO(state), allow_pickle=False) as file:
                settings = json.loads(file["settings"].tobytes())
                vectors = [np.array(file[name]) for name in _VECTORS]
            fresh = Reinforce(
                self.size,
                settings["seed"],
                learning_rate=settings["learning_rate"],
                baseline=settings["baseline"],
                x0=vectors[0],
            )
            steps, mean = settings["steps"], settings["mean"]
            sound = (
                isinstance(steps, int)
                and steps >= 0
                and (mean is None or math.isfinite(mean))
                and all(v.shape == (self.size,) and v.dtype == np.float64 and np.isfinite(v).all() for v in vectors)
                and bool((vectors[2] >= 0).all())
            )
        except (InputError, KeyError, TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"The state of this REINFORCE training cannot be read: {error}") from error
        if not sound:
            raise CheckpointError(f"The state of this REINFORCE training does not fit {self.size} parameters.")
        fresh._first, fresh._second, fresh._steps, fresh._mean = vectors[1], vectors[2], steps, mean
        self.__dict__.update(fresh.__dict__)


def policy_gradient(
    weight: ArrayLike,
    x: ArrayLike,
    agents: ArrayLike,
    roles: ArrayLike,
    agent_mask: ArrayLike,
    role_mask: ArrayLike,
    advantages: ArrayLike,
) -> Array:
    """∇_W Σ_i A_i (log π(agent_i | x_i) + log π(role_i | x_i)) of the linear head z = W x, (L + 3, d) float64.

    `weight` (L + 3, d), agents first; `x` (m, d) normalised features; `agents` and `roles` (m,) the indices chosen;
    `agent_mask` (m, L) and `role_mask` (m, 3) bool, True where choosable: the softmax runs over these alone;
    `advantages` (m,). Raises ValueError for shapes that do not fit and for a choice that is masked.
    """
    w, features, gain = (np.asarray(value, dtype=np.float64) for value in (weight, x, advantages))
    masks = [np.asarray(agent_mask, dtype=bool), np.asarray(role_mask, dtype=bool)]
    chosen = [np.asarray(agents), np.asarray(roles)]
    if w.ndim != 2 or w.shape[0] <= len(Role) or features.ndim != 2 or features.shape[1] != w.shape[1]:
        raise ValueError(
            f"W {w.shape} and x {features.shape} do not fit: (L + {len(Role)}, d) and (m, d) are needed."
        )
    m, count = len(features), w.shape[0] - len(Role)
    if masks[0].shape != (m, count) or masks[1].shape != (m, len(Role)) or gain.shape != (m,):
        raise ValueError(f"The masks must be ({m}, {count}) and ({m}, {len(Role)}), the advantages ({m},).")
    logits = features @ w.T
    parts = [
        _score(part, mask, index)
        for part, mask, index in zip((logits[:, :count], logits[:, count:]), masks, chosen, strict=True)
    ]
    return (np.concatenate(parts, axis=1) * gain[:, None]).T @ features


def _score(logits: Array, mask: NDArray[np.bool_], index: NDArray[np.int_]) -> Array:
    """∂ log softmax(logits)[index] / ∂ logits over the unmasked ones, (m, k)."""
    m, k = logits.shape
    if index.shape != (m,) or (m and (index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= k)):
        raise ValueError(f"The choices must be {m} indices from 0 to {k - 1}.")
    rows, index = np.arange(m), index.astype(np.intp)
    if not mask[rows, index].all():
        raise ValueError("A choice is masked: it cannot have been made.")
    if m == 0:
        return np.zeros((0, k))
    masked = np.where(mask, logits, -np.inf)
    p = np.exp(masked - masked.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    score = -p
    score[rows, index] += 1.0
    return score
