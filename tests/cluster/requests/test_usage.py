"""What accounts use, over three nodes with replicas that are figures only."""

from collections.abc import Mapping, Sequence
from typing import cast

import attrs
import pytest
import trio
import trio.testing

from jetraft.cluster.calls.messages.usage import METHOD, NodeUsage
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.requests.usage import USAGE_WAIT_S, Usages
from jetraft.cluster.state.assignment import StreamAssignment
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.store.model.config import ConsumerConfig, StorageType
from jetraft.store.model.ids import NodeId
from jetraft.store.model.state import NOTHING_ALLOWED, AccountLimits, TierUsage
from jetraft.store.model.tiers import Allowance, TieredLimits
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assign, assignment, config, entry
from tests.cluster.wire import Wire, WireMesh


@attrs.frozen
class Consumer:
    config: ConsumerConfig


@attrs.frozen
class Machine:
    consumers: Mapping[str, Consumer]


@attrs.frozen
class Replica:
    stored_bytes: int
    consumer_count: int = 0
    is_leader: bool = False
    machine: Machine = Machine({})


def consumers(*configs: ConsumerConfig) -> Machine:
    return Machine({str(number): Consumer(one) for number, one in enumerate(configs)})


def held(name: str, replica: Replica, *, memory: bool = False) -> tuple[StreamAssignment, StreamReplica]:
    kind = StorageType.MEMORY if memory else StorageType.FILE
    row = attrs.evolve(assignment(name), config=attrs.evolve(config(name), storage=kind))
    return row, cast("StreamReplica", replica)


def usages(
    wire: Wire,
    node: NodeId,
    replicas: Sequence[tuple[StreamAssignment, StreamReplica]],
    machine: MetaMachine | None = None,
    allowance: Allowance | None = None,
) -> Usages:
    allowed = allowance or AccountLimits()
    return Usages(
        mesh=WireMesh(wire, node),
        machine=machine or MetaMachine(),
        replicas=lambda: replicas,
        limits_of=lambda _account: allowed,
    )


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.link(N1, N2, N3)
    return wire


def test_a_node_counts_every_replica_and_the_consumers_of_what_it_leads(wire: Wire) -> None:
    one = usages(
        wire,
        N1,
        [
            held("A", Replica(100, consumer_count=3, is_leader=True)),
            held("B", Replica(20, consumer_count=5)),
            held("C", Replica(7), memory=True),
        ],
    )
    one.api[ACCOUNT].requests, one.api[ACCOUNT].errors = 11, 2
    one.api["other"].requests = 5
    assert one.here(ACCOUNT) == NodeUsage(memory=7, storage=120, consumers=3, api_requests=11, api_errors=2)


def test_streams_of_other_accounts_are_not_counted(wire: Wire) -> None:
    one = usages(wire, N1, [held("A", Replica(100, consumer_count=3, is_leader=True))])
    assert one.here("OTHER") == NodeUsage()


async def test_the_account_is_the_sum_of_all_nodes(wire: Wire, autojump_clock: trio.testing.MockClock) -> None:
    machine = MetaMachine()
    machine.apply([entry(1, attrs.evolve(assign("A"), config=config("A", max_bytes=1000))), entry(2, assign("B"))])
    one = usages(wire, N1, [held("A", Replica(1, consumer_count=1, is_leader=True))], machine)
    two = usages(wire, N2, [held("A", Replica(2, consumer_count=1))])
    three = usages(wire, N3, [held("B", Replica(4), memory=True)])
    for node in (one, two, three):
        node.api[ACCOUNT].requests, node.api[ACCOUNT].errors = 10, 1
    info = await one.account_info(ACCOUNT)
    assert (info.storage, info.memory, info.streams, info.consumers) == (3, 4, 2, 1)
    assert (info.reserved_storage, info.reserved_memory) == (1000, 0), "no limit reserves nothing"
    assert (info.api.total, info.api.errors) == (30, 3)


async def test_who_does_not_answer_in_time_or_does_not_know_the_question_counts_nothing(
    wire: Wire, autojump_clock: trio.testing.MockClock
) -> None:
    async def silent(_sender: NodeId, _payload: bytes) -> bytes:
        await trio.sleep_forever()
        return b""

    one = usages(wire, N1, [held("A", Replica(1))])
    wire.handlers[N2, METHOD] = silent
    started = trio.current_time()
    assert (await one.account_info(ACCOUNT)).storage == 1
    assert USAGE_WAIT_S <= trio.current_time() - started < 2 * USAGE_WAIT_S
    usages(wire, N2, [held("A", Replica(2))])
    assert (await one.account_info(ACCOUNT)).storage == 3


async def test_an_answer_that_is_none_counts_nothing(
    wire: Wire, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def nonsense(_sender: NodeId, _payload: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return b"\x91\x01"

    one = usages(wire, N1, [held("A", Replica(1))])
    wire.handlers[N2, METHOD] = nonsense
    assert (await one.account_info(ACCOUNT)).storage == 1
    assert f"js.usage at {N2}: a node's usage: not 5 fields" in caplog.text


async def test_a_server_that_stands_alone_is_the_whole_sum() -> None:
    alone = Usages(mesh=None, machine=MetaMachine(), replicas=lambda: [held("A", Replica(5))])
    assert (await alone.account_info(ACCOUNT)).storage == 5


async def test_a_tier_has_the_streams_and_the_consumers_of_its_replicas(
    wire: Wire, autojump_clock: trio.testing.MockClock
) -> None:
    """A consumer of one replica of a stream with three; a tier without limits in which something is."""
    three = attrs.evolve(config("A", max_bytes=1000), num_replicas=3)
    machine = MetaMachine()
    machine.apply([entry(1, attrs.evolve(assign("A"), config=three)), entry(2, assign("B"))])
    kept = consumers(ConsumerConfig(), ConsumerConfig(num_replicas=1), ConsumerConfig(direct=True))
    row, leading = held("A", Replica(10, is_leader=True, machine=kept))
    following = held("A", Replica(10, machine=kept))[1]
    of_three = attrs.evolve(row, config=three)
    tiers = TieredLimits({"R3": AccountLimits(max_streams=5), "R5": AccountLimits(max_streams=1)})
    one = usages(wire, N1, [(of_three, leading)], machine, tiers)
    usages(wire, N2, [(of_three, following)], machine, tiers)
    usages(wire, N3, [(of_three, following), held("B", Replica(4), memory=True)], machine, tiers)
    info = await one.account_info(ACCOUNT)
    assert (info.storage, info.memory, info.limits) == (30, 4, NOTHING_ALLOWED)
    assert info.tiers == {
        "R1": TierUsage(memory=4, streams=1, consumers=1),
        "R3": TierUsage(storage=30, reserved_storage=1000, streams=1, consumers=1, limits=tiers.tiers["R3"]),
        "R5": TierUsage(limits=tiers.tiers["R5"]),
    }
