"""Many seeds, in order, by as many processes as wished, until so many states were judged; and the table of them."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import count

import attrs

from tests.crash_states.crash_models import MODELS
from tests.crash_states.exploration import STEPS, Outcome, Violation, explore

SEEDS = (9, 5, 7, 13, 15, 18, 21, 26, 28, 29)  # of the test suite: about 4,000 states
MET = {  # what no long series may lack, or it shows less than it says
    "cuts",
    "checkpoints",
    "trimmed blocks",
    "erased messages",
    "compacted blocks",
    "dropped blocks",
    "early rolls",
    "installs",
    "abandoned installs",
    "restarts",
    "assumed beginnings",
}


@attrs.frozen(kw_only=True)
class Series:
    """What came of some seeds."""

    seeds: int = 0
    states: Counter[str] = attrs.Factory(Counter)
    depths: Counter[int] = attrs.Factory(Counter)
    met: Counter[str] = attrs.Factory(Counter)
    violations: tuple[Violation, ...] = ()

    @property
    def total(self) -> int:
        """All states that were judged."""
        return self.states.total()

    def plus(self, outcome: Outcome) -> "Series":
        """One seed more."""
        return Series(
            seeds=self.seeds + 1,
            states=self.states + outcome.states,
            depths=self.depths + outcome.depths,
            met=self.met + outcome.met,
            violations=(*self.violations, *outcome.violations),
        )


def played(states: int, *, first: int, jobs: int, steps: int = STEPS) -> Iterator[Outcome]:
    """The outcomes of seeds from `first` on, as many as it takes: the same ones, however many processes there are."""
    left = states
    for outcome in _outcomes(partial(explore, steps=steps), first, jobs):
        yield outcome
        left -= outcome.states.total()
        if left <= 0:
            return


def _outcomes(play: Callable[[int], Outcome], first: int, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(play, count(first))
        return
    workers = min(jobs, os.cpu_count() or 1)
    with ProcessPoolExecutor(max_workers=workers) as pool:
        waiting: deque[Future[Outcome]] = deque()
        try:
            for seed in count(first):
                waiting.append(pool.submit(play, seed))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def table(series: Series, took_s: float) -> str:
    """What was explored and what was found, for the terminal."""
    rate = series.total / max(took_s, 0.001)
    failed = Counter(violation.models[-1] if violation.models else "life" for violation in series.violations)
    rows = [(model.name, str(series.states[model.name]), str(failed[model.name])) for model in MODELS]
    lines = [
        "",
        *_aligned([("the last crash", "states", "violations"), *rows]),
        "",
        f"{series.seeds} seeds, {series.total} states in {took_s:.0f} s, {rate:.0f} a second",
        "crashes in a row: " + ", ".join(f"{number} after {depth}" for depth, number in sorted(series.depths.items())),
        "lives: " + ", ".join(f"{number} {name}" for name, number in sorted(series.met.items())),
        f"{len(series.violations)} violations",
        *map(str, series.violations),
    ]
    return "\n".join(lines)


def _aligned(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    for name, states, violations in rows:
        yield f"{name:<36}{states:>9}{violations:>12}"
