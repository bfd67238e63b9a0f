"""The second connection of a pair: it is there, it is the one that carries bulk, and it is slow when it should be."""

import pytest
import trio

from jetraft.raft.mesh.bulk import BulkLinks
from jetraft.raft.mesh.framing import CHANNEL_BULK, CHANNEL_ROUTE
from jetraft.raft.mesh.handshake import CHALLENGE_BYTES, HandshakeVerdict, Hello, Purpose
from jetraft.raft.mesh.rpc import PeerUnavailableError
from jetraft.raft.mesh.token_bucket import BURST_BYTES
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.ids import NodeId, node_id_of
from tests.harness.patience import PATIENCE_S
from tests.raft.meshes import Node, running

MIB = 1 << 20


async def linked(one: Node, other: Node) -> NodeId:
    """Link the two, with their bulk connection; returns the other's id."""
    one.mesh._connector.dial(other.address)
    await one.wait_up(other)
    await other.wait_up(one)
    with trio.fail_after(PATIENCE_S):
        while not (one.mesh.statistics().bulk_links and other.mesh.statistics().bulk_links):
            await trio.testing.wait_all_tasks_blocked(0.005)
    return other.mesh.node_id


async def large(_sender: NodeId, payload: bytes) -> bytes:
    return bytes(int(payload))


async def test_bulk_takes_the_second_connection_and_the_rest_the_first() -> None:
    one, other = Node("one"), Node("other")
    other.mesh.serve("large", large)
    async with running(one, other):
        node = await linked(one, other)
        before = one.mesh.statistics()
        assert len(await one.mesh.call(node, "large", b"300000", timeout_s=PATIENCE_S, bulk=True)) == 300_000
        after = one.mesh.statistics()
        assert after.bulk_links[node].bytes_received - before.bulk_links[node].bytes_received > 300_000
        assert after.links[node].bytes_received - before.links[node].bytes_received < 10_000
        await one.mesh.call(node, "large", b"300000", timeout_s=PATIENCE_S)
        assert one.mesh.statistics().links[node].bytes_received - after.links[node].bytes_received > 300_000


async def test_bulk_keeps_to_its_rate_and_holds_nothing_else_up() -> None:
    """A burst at once, one piece on credit, and half a second for each of the others; calls do not wait.

    Calls that waited for their turn behind the pieces would be about as many as the pieces.
    """
    one, other = Node("one"), Node("other", bulk_bytes_per_s=2 * BURST_BYTES)
    other.mesh.serve("large", large)
    async with running(one, other):
        node = await linked(one, other)
        began_s = trio.current_time()
        calls = 0
        async with trio.open_nursery() as nursery:

            async def fetch() -> None:
                for _ in range(5):
                    await one.mesh.call(node, "large", b"%d" % BURST_BYTES, timeout_s=PATIENCE_S, bulk=True)
                nursery.cancel_scope.cancel()

            nursery.start_soon(fetch)
            while True:
                await one.mesh.call(node, "large", b"1", timeout_s=PATIENCE_S)
                calls += 1
        assert trio.current_time() - began_s > 1.25
        assert calls > 20


async def test_when_the_bulk_connection_breaks_its_calls_end_and_it_comes_back() -> None:
    one, other = Node("one"), Node("other")
    called = trio.Event()

    async def hang(_sender: NodeId, _payload: bytes) -> bytes:
        called.set()
        await trio.sleep_forever()
        raise AssertionError

    other.mesh.serve("hang", hang)
    other.mesh.serve("large", large)
    async with running(one, other) as nursery:
        node = await linked(one, other)

        async def call() -> None:
            with pytest.raises(PeerUnavailableError, match="bulk"):
                await one.mesh.call(node, "hang", b"", timeout_s=PATIENCE_S, bulk=True)
            ended.set()

        ended = trio.Event()
        nursery.start_soon(call)
        await called.wait()
        bulk = other.mesh._bulk.get(one.mesh.node_id)
        assert bulk is not None
        bulk.close("the test says so")
        with trio.fail_after(PATIENCE_S):
            await ended.wait()
        assert one.up == {node}, "the link stays"
        meanwhile = await one.mesh.call(node, "large", b"9", timeout_s=PATIENCE_S, bulk=True)
        assert len(meanwhile) == 9, "over the link"
        await linked(one, other)


async def test_bulk_ends_with_the_session() -> None:
    one, other = Node("one"), Node("other")
    async with running(one):
        async with running(other):
            node = await linked(one, other)
        await one.wait_up()
        assert one.mesh._bulk.get(node) is None
        assert not one.mesh.send(node, CHANNEL_BULK, b"x")


async def test_only_bulk_belongs_on_it() -> None:
    one, other = Node("one"), Node("other")
    async with running(one, other):
        node = await linked(one, other)
        bulk = one.mesh._bulk.get(node)
        assert bulk is not None
        bulk.send(CHANNEL_ROUTE, b"x")
        with trio.fail_after(PATIENCE_S):
            while other.up:
                await trio.testing.wait_all_tasks_blocked(0.005)


def hello(*, boot: int = 5, session: int = 7) -> Hello:
    return Hello(
        cluster="c",
        node_id=node_id_of("n"),
        name="n",
        boot=boot,
        session=session,
        challenge=b"\1" * CHALLENGE_BYTES,
        purpose=Purpose.BULK,
    )


def bulk_links() -> BulkLinks:
    return BulkLinks(
        clock=ManualClock(),
        on_frame=lambda _node, _payload: None,
        on_ended=lambda _node, **_: None,
        after_frames=lambda: None,
    )


def test_a_bulk_connection_belongs_to_one_session_and_there_is_one() -> None:
    links = bulk_links()
    assert links.judge(hello()) is HandshakeVerdict.NO_SESSION
    links.session_began(node_id_of("n"), boot=5, number=7)
    assert links.judge(hello(boot=6)) is HandshakeVerdict.NO_SESSION
    assert links.judge(hello(session=6)) is HandshakeVerdict.NO_SESSION
    assert links.judge(hello()) is HandshakeVerdict.KEEP
    assert links.judge(hello()) is HandshakeVerdict.NO_SESSION, "its place is taken"
    links.release(node_id_of("n"))
    assert links.judge(hello()) is HandshakeVerdict.KEEP
    links.session_ended(node_id_of("n"))
    assert links.judge(hello()) is HandshakeVerdict.NO_SESSION
