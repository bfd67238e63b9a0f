"""The short form of `make faults`: three faults on real processes in network namespaces, judged on every replica."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import netns

pytestmark = pytest.mark.campaign

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_acknowledged_is_lost_or_doubled_by_a_kill_a_partition_and_a_kill_of_all(tmp_path: Path) -> None:
    if (reason := netns.missing()) is not None:
        pytest.skip(f"FAULTS NOT RUN: {reason}")
    command = [sys.executable, "-m", "tests.faults", "--short", "--keep", str(tmp_path)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(", clean\n") == 3
