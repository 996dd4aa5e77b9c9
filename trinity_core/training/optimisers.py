"""Optimisers of theta: what they have in common.

Fitness is maximised everywhere; a candidate whose fitness is not finite (a failed call, None) ranks worst. An
optimiser is a function of (settings, seed) and of what it was told, so asking and telling again what is stored gives
the same theta, bit for bit, on the same machine and versions; nothing is pickled and the global NumPy generator is
neither read nor changed.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trinity_core.errors import InputError
from trinity_core.training.plan import population as default_population

Array = NDArray[np.float64]

FLAT = "flat_fitness"
"""Status of a generation in which (nearly) all candidates did equally well. It is not convergence."""
FLAT_RANGE = 1e-11
"""Fitness that differs by less is equal (pycma's `tolfun`)."""
FLAT_SHARE = 0.75
"""The best value reaching down to this share of the candidates makes a generation flat (pycma's `tolflatfitness`)."""
LEAST_POPULATION = 4
MOST_POPULATION = 10_000


class Optimiser(Protocol):
    """Ask for candidates, tell their fitness, ask again."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int:
        """n, the length of theta."""
        ...

    @property
    def population(self) -> int:
        """λ, candidates of a generation."""
        ...

    @property
    def sigma(self) -> float | None: ...

    @property
    def spread(self) -> tuple[float, float] | None:
        """The largest and the smallest standard deviation of a coordinate, sigma included."""
        ...

    @property
    def centre(self) -> Array:
        """What to deploy when nothing else is known: the distribution's mean, or the best so far, (n,); a copy."""
        ...

    def ask(self) -> Array:
        """Candidates (λ, n) float64, read-only. Asking twice without telling gives the same ones."""
        ...

    def tell(self, fitness: Sequence[float | None]) -> str:
        """Take the fitness (λ,) of the candidates asked for, in ask order. Returns "" or "flat_fitness".

        Raises ValueError for another number of values, for something that is no number, and when no candidates are
        asked for; the optimiser is then as it was before.
        """
        ...


class AskTell(ABC):
    """The protocol's bookkeeping: one generation at a time, checked input. Calls from several threads take turns."""

    def __init__(self, size: int, population: int | None) -> None:
        """Raises InputError for a size or population that cannot be; None means λ = ⌈4 + 3 ln n⌉."""
        if size < 1:
            raise InputError("There is nothing to train: theta has no parameters.")
        chosen = default_population(size) if population is None else population
        if isinstance(chosen, bool) or chosen != int(chosen) or not LEAST_POPULATION <= chosen <= MOST_POPULATION:
            raise InputError(
                f"population is {chosen}; it must be a whole number from {LEAST_POPULATION} to {MOST_POPULATION:,}."
            )
        self._size, self._population = int(size), int(chosen)
        self._asked: Array | None = None
        self._lock = threading.RLock()

    @property
    def size(self) -> int:
        """n, the length of theta."""
        return self._size

    @property
    def population(self) -> int:
        """λ, candidates of a generation."""
        return self._population

    def ask(self) -> Array:
        """See `Optimiser.ask`."""
        with self._lock:
            if self._asked is None:
                self._asked = self._sample()
                self._asked.setflags(write=False)
            return self._asked

    def tell(self, fitness: Sequence[float | None]) -> str:
        """See `Optimiser.tell`. When no value is finite nothing is learned and `ask` gives the same candidates."""
        with self._lock:
            values = numbers(fitness)
            if len(values) != self._population:
                raise ValueError(f"{len(values)} fitness values were told; there are {self._population} candidates.")
            if self._asked is None:
                raise ValueError("Fitness was told before candidates were asked for.")
            if np.isfinite(values).any():
                self._learn(self._asked, values)
                self._asked = None
            return FLAT if is_flat(values) else ""

    @property
    @abstractmethod
    def centre(self) -> Array:
        """See `Optimiser.centre`."""

    @abstractmethod
    def _sample(self) -> Array:
        """A fresh array of candidates (λ, n)."""

    @abstractmethod
    def _learn(self, candidates: Array, fitness: Array) -> None:
        """Take fitness (λ,), of which at least one is finite."""


def numbers(values: Sequence[float | None]) -> Array:
    """float64 (m,) of Python or NumPy numbers, None as NaN. Raises ValueError for anything else."""
    out = np.empty(len(values))
    for i, value in enumerate(values):
        try:
            out[i] = math.nan if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"value {i} is {value!r}, not a number.") from None
    return out


def is_flat(fitness: Array) -> bool:
    """Whether a generation says (nearly) nothing: no value is finite, all are equal, or the best three quarters are.

    Only the values count, whether or not the optimiser still moves.
    """
    worst_first = np.sort(np.where(np.isfinite(fitness), fitness, -np.inf))
    best_first = worst_first[::-1]
    if best_first[0] == -np.inf:
        return True
    with np.errstate(over="ignore"):
        return bool(best_first[0] - best_first[int(FLAT_SHARE * len(best_first))] < FLAT_RANGE)


def generator(seed: int, purpose: int, *more: int) -> np.random.Generator:
    """A generator of our own. Any seed from 0 is as good as another; two purposes share nothing.

    Raises InputError for a negative seed or one that is not whole.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"The seed is {seed!r}; it must be a whole number from 0.")
    return np.random.default_rng([int(seed), purpose, *more])


def start_vector(values: ArrayLike) -> Array:
    """A fresh float64 copy (n,) of `values`. Raises InputError unless it is a finite vector."""
    vector = np.array(values, dtype=np.float64)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise InputError("The start of a training must be a vector of finite numbers.")
    return vector
