"""The short form of `make faults-disk`: power cuts, a failed fsync and a leader's slow disk under real servers."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.disk.mounts import missing

pytestmark = pytest.mark.campaign

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_acknowledged_is_lost_by_power_cuts_a_failed_fsync_and_a_slow_disk(tmp_path: Path) -> None:
    if (reason := missing()) is not None:
        pytest.skip(f"DISK FAULTS NOT RUN: {reason}")
    command = [sys.executable, "-m", "tests.faults.disk", "--short", "--keep", str(tmp_path)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(", clean\n") == 4
