"""What the optimiser costs beside playing tasks: one generation at the paper's size, against drawing its samples."""

from __future__ import annotations

import statistics
import time

import numpy as np

from trinity_core.training.evolve import SepCMA

PARAMETERS = 19_456
"""About the paper's twenty thousand: twelve rows of 1,024 features (12,288) and 7,168 SVF scales."""
GENERATIONS = 20


def optimiser_overhead() -> list[str]:
    """Lines to print: seconds of ask and of tell, their sum against NumPy's draws alone, and of a replay."""
    one = SepCMA(np.zeros(PARAMETERS), 1.0, seed=0)
    rng = np.random.default_rng(0)
    fitness = [list(map(float, rng.standard_normal(one.population))) for _ in range(GENERATIONS)]
    asked, told, drawn = [], [], []
    for values in fitness:
        start = time.perf_counter()
        one.ask()
        middle = time.perf_counter()
        one.tell(values)
        end = time.perf_counter()
        rng.standard_normal((one.population, PARAMETERS))
        asked.append(middle - start)
        told.append(end - middle)
        drawn.append(time.perf_counter() - end)
    ask_s, tell_s, draw_s = (statistics.median(times) for times in (asked, told, drawn))
    again = SepCMA(np.zeros(PARAMETERS), 1.0, seed=0)
    start = time.perf_counter()
    for values in fitness:
        again.ask()
        again.tell(values)
    replayed = time.perf_counter() - start
    equal = "bit-equal" if again.centre.tobytes() == one.centre.tobytes() else "DIFFERENT"
    return [
        f"sep-CMA-ES: n = {PARAMETERS:,}, population {one.population} (median of {GENERATIONS} generations)",
        f"  ask {ask_s:.3f} s, tell {tell_s:.3f} s; drawing as many normal numbers with NumPy alone {draw_s:.3f} s, "
        f"ratio {(ask_s + tell_s) / draw_s:.1f}",
        f"  replay of {GENERATIONS} generations {replayed:.2f} s ({replayed / GENERATIONS:.3f} s each), {equal}",
    ]


if __name__ == "__main__":
    print("\n".join(optimiser_overhead()))
