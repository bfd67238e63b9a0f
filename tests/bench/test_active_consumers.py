"""The short form of `make bench-consumers`: everything that it measures works."""

from pathlib import Path

import pytest

from tests.bench.active_consumers import measure
from tests.bench.measure import build_generator


def test_it_measures_creation_memory_and_publishing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure("jetraft", build_generator(tmp_path), 1, 20, messages=2_000)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("jetraft: 20 consumers on R1: ")
    assert lines[1].startswith("bytes of memory each, by node: ")
    assert lines[2].startswith("published beside one reader that falls behind: ")
    assert lines[3].startswith("beside one that keeps up: ")
    assert lines[4].startswith("beside 100: ")
