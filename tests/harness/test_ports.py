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

SHARE = """
import threading
from concurrent.futures import ThreadPoolExecutor
from tests.harness import ports
claim, claims = ports.claim, []
def slow(directory):
    claims.append(directory)
    threading.Event().wait(0.1)  # so long that every thread would come to claim
    return claim(directory)
ports.claim = slow
start = threading.Barrier(8)
def take(_):
    start.wait()
    return [ports.free_port() for _ in range(8)]
with ThreadPoolExecutor(8) as pool:
    given = {port for taken in pool.map(take, range(8)) for port in taken}
print(len(claims), "claim,", len(given), "ports")
"""


@pytest.mark.parametrize("taken", [(32_768, 60_999), (15_000, 64_999), (10_000, 30_000), (1_024, 40_000)])
def test_a_port_is_none_that_the_kernel_gives_to_connections(
    taken: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "range"
    told.write_text("{}\t{}\n".format(*taken), encoding="ascii")
    monkeypatch.setattr(ports, "EPHEMERAL_RANGE", told)
    for first in ports._bands():
        assert first + BAND_PORTS <= taken[0] or first > taken[1]
        assert 1_024 < first < 65_536 - BAND_PORTS


def test_where_the_kernel_gives_out_nearly_all_ports_there_are_bands_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "range"
    told.write_text("1024\t65535\n", encoding="ascii")
    monkeypatch.setattr(ports, "EPHEMERAL_RANGE", told)
    assert len(ports._bands()) >= ports.BANDS_MIN


def test_threads_of_a_process_share_its_band_and_are_given_different_ports() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", SHARE], capture_output=True, text=True, check=False, env=environment)
    assert ended.stdout == "1 claim, 64 ports\n", ended.stderr


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
    bands = len(ports._bands())
    locks = [claim(tmp_path)[1] for _ in range(bands)]
    with pytest.raises(NoPortError, match="every band of ports is taken"):
        claim(tmp_path)
    for lock in locks:
        lock.close()
