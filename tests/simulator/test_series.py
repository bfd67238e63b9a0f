"""A series plays every seed that it was asked for, whatever one of them does."""

import pytest

from tests.simulator import series
from tests.simulator.engines import play
from tests.simulator.run import Result


def test_a_run_that_breaks_off_is_a_problem_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks_once(seed: int, mode: str, engine: str) -> Result:
        if seed == 1:
            raise OSError("a seed that breaks off")
        return play(seed, mode, engine)

    monkeypatch.setattr(series, "play", breaks_once)
    found = series.play_some("one", "core", range(3))
    assert (found.seeds, list(found.problems)) == (3, [1])
    assert "a seed that breaks off" in found.problems[1]
