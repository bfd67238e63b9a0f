import math
from contextlib import suppress

import pytest
import trio
import trio.testing

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_ROUTE
from jetraft.raft.mesh.handshake import HELLO_BYTES
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model.ids import NodeId
from tests.harness.patience import PATIENCE_S
from tests.raft.meshes import SETTLED_S, Node, NodeOptions, assert_frames_arrive_whole_and_in_order, running


async def test_one_seed_is_enough_for_a_full_mesh() -> None:
    seed = Node("seed")
    async with running(seed) as nursery:
        others = [Node(name, routes=(seed.address,)) for name in ("b", "c", "d")]
        for other in others:
            await nursery.start(other.mesh.run)
        everyone = [seed, *others]
        for node in everyone:
            await node.wait_up(*(other for other in everyone if other is not node))
        assert seed.mesh.peers[others[0].mesh.node_id].client_url == "nats://b"


async def test_routes_in_both_directions_and_to_itself_give_one_session() -> None:
    one, other = Node("one"), Node("other")
    async with running(one, other):
        for node in (one, other):
            for address in (one.address, other.address):
                node.mesh._connector.dial(address)
        await one.wait_up(other)
        await other.wait_up(one)
        for node in (one, other):
            await node.wait_shaken(attempts=2)
        await trio.testing.wait_all_tasks_blocked(SETTLED_S)
        assert one.events == [("up", other.mesh.node_id)]
        assert other.events == [("up", one.mesh.node_id)]
        assert [node.mesh.statistics().sessions_begun for node in (one, other)] == [1, 1]


async def test_while_the_secret_is_changed_nodes_with_either_one_have_links() -> None:
    """In the order of a rolling change: both known, then the new one first, then the new one alone."""
    before = Node("n1", secret=b"old", old_secrets=(b"new",))
    async with running(before) as nursery:
        changed = Node("n2", routes=(before.address,), secret=b"new", old_secrets=(b"old",))
        await nursery.start(changed.mesh.run)
        await before.wait_up(changed)
        last = Node("n3", routes=(before.address, changed.address), secret=b"new")
        await nursery.start(last.mesh.run)
        await last.wait_up(before, changed)
        assert before.mesh.statistics().handshakes_refused == 0


@pytest.mark.parametrize(
    ("name", "stranger"),
    [("x", {"cluster": "other"}), ("x", {"secret": b"guess"}), ("x", {"secret": b""}), ("seed", {})],
    ids=["cluster", "secret", "no secret", "same name"],
)
async def test_strangers_stay_outside(name: str, stranger: NodeOptions) -> None:
    seed = Node("seed")
    async with running(seed) as nursery:
        intruder = Node(name, routes=(seed.address,), **stranger)
        await nursery.start(intruder.mesh.run)
        with trio.fail_after(PATIENCE_S):
            while seed.mesh.statistics().handshakes_refused < 2:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert (seed.up, intruder.up) == (set(), set())


async def test_a_node_with_another_secret_knows_that_it_is_shut_out_until_it_has_a_link() -> None:
    seed, other = Node("seed"), Node("other")
    async with running(seed, other) as nursery:
        other.mesh._connector.dial(seed.address)
        await other.wait_up(seed)
        wrong = Node("wrong", routes=(seed.address,), secret=b"guess")
        strange = Node("strange", routes=(seed.address,), cluster="other")
        for node in (wrong, strange):
            await nursery.start(node.mesh.run)
        with trio.fail_after(PATIENCE_S):
            while not wrong.mesh.is_shut_out:
                await trio.testing.wait_all_tasks_blocked(0.01)
        seed.mesh._connector.dial(wrong.address)
        with trio.fail_after(PATIENCE_S):
            while not seed.mesh._connector.is_proof_refused:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert not seed.mesh.is_shut_out, "it has a link with another"
        assert not strange.mesh.is_shut_out, "that has another reason"


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n" + b"x" * HELLO_BYTES, b"\0" * HELLO_BYTES])
async def test_other_protocols_are_cut_off(data: bytes) -> None:
    seed = Node("seed")
    async with running(seed):
        stream = await trio.open_tcp_stream("127.0.0.1", seed.address.port)
        await stream.send_all(data)
        with trio.fail_after(PATIENCE_S), suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
        await stream.aclose()
        assert seed.mesh.statistics().handshakes_refused == 1


async def test_frames_arrive_in_order_and_whole() -> None:
    one, other = Node("one"), Node("other")
    async with running(one, other):
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)
        await assert_frames_arrive_whole_and_in_order(one, other, 500)


async def test_a_peer_that_ends_is_down_once_and_comes_back() -> None:
    seed = Node("seed")
    async with running(seed):
        for _ in range(2):
            other = Node("other", routes=(seed.address,))
            async with running(other):
                await other.wait_up(seed)
                await seed.wait_up(other)
            await seed.wait_up()
        node = node_of(other)
        assert seed.events == [("up", node), ("down", node), ("up", node), ("down", node)]
        assert not seed.mesh.send(node, CHANNEL_ROUTE, b"x")


def node_of(node: Node) -> NodeId:
    return node.mesh.node_id


async def test_calls_are_answered_or_end_with_a_reason() -> None:
    one, other = Node("one"), Node("other")

    async def double(_sender: NodeId, payload: bytes) -> bytes:
        return payload * 2

    async def fail(_sender: NodeId, _payload: bytes) -> bytes:
        raise RemoteCallError("not today")

    async def refuse(_sender: NodeId, _payload: bytes) -> bytes:
        raise RemoteProtocolError("a question: not 3 fields")

    async def hang(_sender: NodeId, _payload: bytes) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    other.mesh.serve("refuse", refuse)
    other.mesh.serve("double", double, request_bytes_max=1_000_000)
    other.mesh.serve("fail", fail)
    other.mesh.serve("hang", hang)
    async with running(one, other):
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)
        node = other.mesh.node_id
        assert await one.mesh.call(node, "double", b"ab", timeout_s=PATIENCE_S) == b"abab"
        assert len(await one.mesh.call(node, "double", b"x" * 1_000_000, timeout_s=PATIENCE_S, bulk=True)) == 2_000_000
        with pytest.raises(RemoteCallError, match="not today"):
            await one.mesh.call(node, "fail", b"", timeout_s=PATIENCE_S)
        with pytest.raises(RemoteCallError, match=r"^a question: not 3 fields$"):
            await one.mesh.call(node, "refuse", b"", timeout_s=PATIENCE_S)
        with pytest.raises(RemoteCallError, match="too large"):
            await one.mesh.call(node, "hang", b"x" * 65_537, timeout_s=PATIENCE_S)
        with pytest.raises(RemoteCallError, match="no such method"):
            await one.mesh.call(node, "unheard of", b"", timeout_s=PATIENCE_S)
        with pytest.raises(CallTimeoutError):
            await one.mesh.call(node, "hang", b"", timeout_s=0.01)
        with pytest.raises(PeerUnavailableError):
            await one.mesh.call(NodeId("nowhere0"), "double", b"", timeout_s=PATIENCE_S)


async def test_calls_under_way_end_with_the_link() -> None:
    one, other = Node("one"), Node("other")
    called = trio.Event()

    async def hang(_sender: NodeId, _payload: bytes) -> bytes:
        called.set()
        await trio.sleep_forever()
        raise AssertionError

    other.mesh.serve("hang", hang)

    async def call() -> None:
        with pytest.raises(PeerUnavailableError):
            await one.mesh.call(other.mesh.node_id, "hang", b"", timeout_s=PATIENCE_S)

    async with running(one), trio.open_nursery() as nursery, running(other):
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)
        nursery.start_soon(call)
        await called.wait()


async def test_metadata_is_told_to_the_peers() -> None:
    one, other = Node("one"), Node("other")
    told, heard = trio.open_memory_channel[object](math.inf)
    async with running(one, other):
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)
        await other.wait_up(one)
        other.mesh.on_peer_changed.connect(lambda node: told.send_nowait(other.mesh.peers[node].metadata))
        one.mesh.describe("has_meta", True)  # noqa: FBT003  (a value)
        with trio.fail_after(PATIENCE_S):
            while await heard.receive() != {**one.mesh._metadata, "has_meta": True}:
                pass  # a frame of before: the links of the other are told in frames of the same kind


async def test_a_turn_ends_after_the_frames_of_a_read() -> None:
    calls: list[str] = []
    ended = trio.Event()

    def end_turn() -> None:
        calls.append("turn")
        if "frame" in calls:
            ended.set()

    one, other = Node("one"), Node("other", after_frames=end_turn)
    async with running(one, other):
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)
        other.mesh.on_frame(CHANNEL_ROUTE, lambda _node, _payload: calls.append("frame"))
        for _ in range(3):
            one.mesh.send(other.mesh.node_id, CHANNEL_ROUTE, b"x")
        with trio.fail_after(PATIENCE_S):
            await ended.wait()
        assert calls[-1] == "turn"
