"""Ports for servers under test: nobody else is given them, by the kernel or by another test process."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ports
from tests.harness.ports import BAND_PORTS, HOST, NoPortError, claim, free_port

HOLD = """
import sys, pathlib
from tests.harness.ports import claim
held = claim(pathlib.Path(sys.argv[1]))
print(held[0], flush=True)
sys.stdin.read()
"""


def test_a_port_is_none_that_the_kernel_gives_to_connections() -> None:
    lowest, highest = map(int, ports.EPHEMERAL_RANGE.read_text(encoding="ascii").split())
    assert not any(lowest <= free_port() <= highest for _ in range(2 * BAND_PORTS))


def test_a_port_is_not_given_twice_before_the_band_is_through() -> None:
    given = [free_port() for _ in range(BAND_PORTS // 2)]
    assert len(set(given)) == len(given)


def test_a_port_on_which_somebody_listens_is_passed_over() -> None:
    taken = free_port()
    with socket.create_server((HOST, taken)):
        assert taken not in [free_port() for _ in range(BAND_PORTS)]


def test_a_band_has_one_holder_and_is_given_back_when_its_process_is_killed(tmp_path: Path) -> None:
    first, lock = claim(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with (
        lock,
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as other,
    ):
        assert other.stdout is not None
        others = int(other.stdout.readline())
        assert others == first + BAND_PORTS
        third, lock_of_third = claim(tmp_path)
        assert third == others + BAND_PORTS
        other.send_signal(signal.SIGKILL)
        other.wait()
        again, lock_of_again = claim(tmp_path)
        assert again == others
        lock_of_third.close()
        lock_of_again.close()


def test_with_every_band_taken_it_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOWEST_PORT", 30_000)
    monkeypatch.setattr(ports, "EPHEMERAL_RANGE", tmp_path / "not-linux")
    bands = len(range(30_000, 32_767 - BAND_PORTS, BAND_PORTS))
    locks = [claim(tmp_path)[1] for _ in range(bands)]
    with pytest.raises(NoPortError, match="every band of ports is taken"):
        claim(tmp_path)
    for lock in locks:
        lock.close()
