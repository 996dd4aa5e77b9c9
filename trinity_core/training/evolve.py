"""Separable CMA-ES (Ros and Hansen, 2008) on pycma: the paper's optimiser of theta (section 3).

The covariance is diagonal from the first generation to the last; λ is explicit and μ = ⌊λ/2⌋ (pycma's weights).
Samples come from a generator of our own: with its defaults pycma seeds and draws from the global one, and takes seed
0 for the clock. pycma's stopping rules are never asked, since one generation of equal rewards satisfies them;
nothing is written to a file or printed.

Equal fitness is put in a random order (a second generator): in ask order the first candidate, which from the second
generation on continues the last step, would always win, and each step on a plateau would lean a quarter towards the
last. Sigma follows the fitness itself.

Not covered: bounds, restarts, noise handling, integer parameters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trinity_core.errors import InputError, TrinityError
from trinity_core.training.optimisers import Array, AskTell, generator, start_vector

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it complains that there is nothing to draw figures with
    import cma
    from cma.sigma_adaptation import CMAAdaptSigmaCSA, CMAAdaptSigmaTPA

TWO_POINT_FROM = 300
"""n from which sigma follows two samples on the last step (two-point adaptation), as pycma has it; below, CSA. On
2,016 parameters, 60 generations, σ0 = 0.03 two-point adaptation finds the scale and CSA does not; at σ0 = 1 they are
equal."""
_SAMPLES, _TIES = 1, 4


class _TwoPoint(CMAAdaptSigmaTPA):
    """Sigma from the first two candidates, which lie forward and backward on the last step of the mean."""

    losses: Array
    """Of this generation, equal ones equal."""

    def update2(self, es: Any, function_values: Sequence[float], **more: Any) -> Any:
        """pycma's, on the losses before equal ones were put in an order: a plateau leaves sigma alone."""
        return super().update2(es, function_values=self.losses, **more)

    def check_consistency(self, es: Any) -> None:
        """Left out: an assertion about pycma's own samples that draws coordinates from the global generator."""


class SepCMA(AskTell):
    """Separable CMA-ES on θ (n,), maximising."""

    name = "sep-CMA-ES"

    def __init__(self, x0: ArrayLike, sigma: float, seed: int, population: int | None = None) -> None:
        """Start at `x0` (n,) with standard deviation `sigma` in every coordinate.

        `population` None means λ = ⌈4 + 3 ln n⌉. Raises InputError for a start or sigma that is not finite, a sigma
        that is not above 0, a negative seed, and a population below 4.
        """
        mean = start_vector(x0)
        super().__init__(len(mean), population)
        if not (math.isfinite(sigma) and sigma > 0):
            raise InputError(f"sigma is {sigma}; it is the first step size and must be a finite number above 0.")
        self._rng = generator(seed, _SAMPLES)
        self._ties = generator(seed, _TIES)
        options = {
            "CMA_diagonal": True,
            "popsize": self.population,
            "AdaptSigma": _TwoPoint if self.size >= TWO_POINT_FROM else CMAAdaptSigmaCSA,
            "CMA_mirrors": 0,
            "randn": self._normal,
            "seed": math.nan,  # leaves the global generator alone
            "verbose": -10,
            "verb_disp": 0,
            "verb_log": 0,
            "signals_filename": "",
        }
        self._es: Any = cma.CMAEvolutionStrategy(mean, float(sigma), options)

    @property
    def parents(self) -> int:
        """μ = ⌊λ/2⌋, candidates that make the next mean."""
        return self.population // 2

    @property
    def sigma(self) -> float:
        """The common step size."""
        return float(self._es.sigma)

    @property
    def spread(self) -> tuple[float, float]:
        """The largest and the smallest standard deviation of a coordinate, sigma included."""
        with self._lock:
            stds = np.asarray(self._es.stds)
        return float(stds.max()), float(stds.min())

    @property
    def centre(self) -> Array:
        """The distribution's mean (n,), a copy."""
        with self._lock:
            return np.array(self._es.mean, dtype=np.float64)

    def _normal(self, *shape: int) -> Array:
        return self._rng.standard_normal(shape)

    def _sample(self) -> Array:
        candidates = np.array(self._es.ask(), dtype=np.float64)
        if not np.isfinite(candidates).all():
            raise TrinityError("The step size has run off to infinity. Start again with a smaller sigma.")
        return candidates

    def _learn(self, candidates: Array, fitness: Array) -> None:
        # pycma itself would put the median in the place of a NaN.
        losses = np.where(np.isfinite(fitness), -fitness, np.inf)
        self._es.adapt_sigma.losses = losses
        self._es.tell(list(candidates), self._ordered(losses))

    def _ordered(self, losses: Array) -> list[float]:
        """The losses, or their ranks where some are equal or infinite: pycma compares them and does no more."""
        if np.isfinite(losses).all() and len(np.unique(losses)) == len(losses):
            return [float(loss) for loss in losses]
        order = np.lexsort((self._ties.permutation(len(losses)), losses))
        ranks = np.empty(len(losses))
        ranks[order] = np.arange(len(losses))
        return [float(rank) for rank in ranks]


def replay(optimiser: AskTell, told: Sequence[Sequence[float | None]]) -> None:
    """Bring a fresh optimiser to where it was after it was told these generations, bit for bit."""
    for fitness in told:
        optimiser.ask()
        optimiser.tell(fitness)
