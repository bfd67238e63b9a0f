"""Nodes compare their clocks: over real links, with machines whose wall clock is wrong."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import msgpack
import pytest

from jetraft.cluster.calls.messages.clocks import ClockAnswer
from jetraft.cluster.clocks import ROUND_TRIP_NS_MAX, read_answer
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import parse_time
from jetraft.store.model.steady import AGREE_NS, ClockReading
from tests.cluster.inprocess import InProcessCluster, until

if TYPE_CHECKING:
    from pathlib import Path

    import trio

    from jetraft.store.model.steady import SteadyStatistics

HOUR_NS = 3600 * NS_PER_S
NAMES = ("n1", "n2", "n3")


def clocks(cluster: InProcessCluster, name: str) -> SteadyStatistics:
    return cluster[name].node.statistics().clocks


async def agree(cluster: InProcessCluster) -> None:
    """Return when every node follows a majority."""
    await until(lambda: all(clocks(cluster, name).is_set and clocks(cluster, name).has_majority for name in NAMES))


async def test_a_node_whose_wall_clock_is_wrong_goes_by_the_others(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = InProcessCluster(tmp_path, nursery)
    with caplog.at_level(logging.WARNING):
        await cluster.start(*NAMES, wrong_by_ns={"n1": HOUR_NS})
        await agree(cluster)
    assert abs(clocks(cluster, "n1").own_wall_ns - HOUR_NS) < AGREE_NS
    assert abs(clocks(cluster, "n2").own_wall_ns) < AGREE_NS
    assert "this machine's is 3600" in caplog.text or "this machine's is 3599" in caplog.text
    right_ns = cluster["n2"].machine.unix_ns()
    created = await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    assert abs((parse_time(created["created"]) or 0) - right_ns) < 60 * NS_PER_S


async def test_a_node_that_starts_takes_over_the_time_that_the_others_have_counted(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    cluster = InProcessCluster(tmp_path, nursery)
    await cluster.start(*NAMES)
    await agree(cluster)
    for name in NAMES:
        cluster[name].machine.wrong_by_ns = HOUR_NS
    await cluster.stop(cluster["n3"])
    await cluster.start("n3", wrong_by_ns={"n3": HOUR_NS})
    await agree(cluster)
    for name in NAMES:
        assert abs(clocks(cluster, name).own_wall_ns - HOUR_NS) < 60 * NS_PER_S


def test_an_answer_belongs_to_the_middle_of_the_question() -> None:
    answer = ClockAnswer(wall_ns=1_000, steady_ns=2_000)
    assert read_answer(answer, 100, 300) == ClockReading(wall_ns=800, steady_ns=1_800)
    assert read_answer(attrs.evolve(answer, steady_ns=None), 100, 300) == ClockReading(wall_ns=800, steady_ns=None)


@pytest.mark.parametrize(
    "answer", [b"", b"\xc1", msgpack.packb(7), msgpack.packb((1,)), msgpack.packb(("1", 2)), msgpack.packb((1, 2.5))]
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="a reading of clocks"):
        ClockAnswer.unpack(answer)


def test_an_answer_that_took_long_says_nothing() -> None:
    assert read_answer(ClockAnswer(wall_ns=1_000, steady_ns=2_000), 0, ROUND_TRIP_NS_MAX + 1) is None
