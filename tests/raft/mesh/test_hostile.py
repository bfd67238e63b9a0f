"""Peers that mean no good, over real sockets: nothing of theirs is believed, and what is logged has a bound."""

import logging
import random
import socket
from collections import Counter
from contextlib import suppress

import pytest
import trio
import trio.lowlevel

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.connector import HANDSHAKES_MAX
from jetraft.raft.mesh.framing import (
    CHANNEL_CONTROL,
    CHANNEL_RAFT,
    CHANNEL_ROUTE,
    CHANNEL_RPC,
    FRAME_BYTES_MAX,
    frame_head,
)
from jetraft.raft.mesh.handshake import HELLO_BYTES, Purpose
from jetraft.raft.mesh.known_peers import PENALTY_NS
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import exchange_to_end
from tests.raft.meshes import LOOPBACK, Node, running
from tests.raft.stranger import Stranger

to_thread = trio.to_thread.run_sync
AGAIN = 20_000  # frames that arrive after a flip


def frames_of(node: Node) -> list[tuple[NodeId, bytes]]:
    """What the node's RAFT and ROUTE handlers get from now on."""
    handled: list[tuple[NodeId, bytes]] = []
    for channel in (CHANNEL_RAFT, CHANNEL_ROUTE):
        node.mesh.on_frame(channel, lambda sender, payload: handled.append((sender, bytes(payload))))
    return handled


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of peers; that a connection ended early is said once beside it."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum("lost in the handshake" in line for line in lines) <= 1
    return [line for line in lines if "lost in the handshake" not in line]


async def until_left_alone(node: Node) -> None:
    with trio.fail_after(PATIENCE_S):
        while node.up:
            await trio.testing.wait_all_tasks_blocked(0.005)


def hung_up_on(port: int, *said: bytes) -> bool:
    """Whether a stranger who says this and then waits is hung up on."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        exchange_to_end(sock, b"".join(said))
    return True


@pytest.mark.parametrize("seed", range(4))
async def test_garbage_before_the_proof_is_dropped_with_one_line(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Noise, other versions, flipped bits, other protocols, wrong proofs: in any order, from one address."""
    dice = random.Random(seed)
    seed_node = Node("seed")
    async with running(seed_node):
        handled = frames_of(seed_node)
        port = seed_node.address.port

        def attack() -> None:
            with Stranger(port) as friend:
                greeting = bytearray(friend.hello().encode())
            for _ in range(25):
                flipped = greeting.copy()
                flipped[dice.randrange(HELLO_BYTES)] ^= 1 << dice.randrange(8)
                noise = dice.randbytes(dice.choice((HELLO_BYTES, HELLO_BYTES + 33, 5000)))
                proofless = bytes(greeting) + dice.randbytes(33) + frame_head(CHANNEL_RAFT, b"x") + b"x"
                hung_up_on(port, dice.choice((noise, bytes(flipped) + dice.randbytes(33), proofless)))

        await to_thread(attack)
        assert seed_node.mesh.statistics().handshakes_refused == 25
        assert (handled, seed_node.events, dict(seed_node.mesh.peers)) == ([], [], {})
        assert len(complaints(caplog)) == 1


async def test_a_handshake_that_was_overheard_is_worth_nothing() -> None:
    """The same bytes again, also while the real node is linked: the acceptor's challenge is another one each time."""
    seed = Node("seed")
    async with running(seed):
        handled = frames_of(seed)

        def join_and_replay() -> None:
            with Stranger(seed.address.port) as stranger:
                assert stranger.join()
                stranger.introduce()
                stranger.send(CHANNEL_RAFT, b"real")
                session = frame_head(CHANNEL_RAFT, b"replayed") + b"replayed"
                for _ in range(5):
                    assert hung_up_on(seed.address.port, stranger.said + session)

        await to_thread(join_and_replay)
        await until_left_alone(seed)
        assert [payload for _, payload in handled] == [b"real"]
        assert [what for what, _ in seed.events] == ["up", "down"]
        assert seed.mesh.statistics().handshakes_refused == 5


async def test_a_bulk_connection_without_its_session_is_refused() -> None:
    seed = Node("seed")
    async with running(seed):

        def try_all() -> list[bool]:
            answers = []
            with Stranger(seed.address.port) as stranger:
                assert stranger.join(stranger.hello(session=7, boot=3))
                stranger.introduce()
                for session, boot in ((7, 4), (8, 3), (7, 3), (7, 3)):
                    with Stranger(seed.address.port) as beside:
                        hello = beside.hello(session=session, boot=boot, purpose=Purpose.BULK)
                        answers.append(beside.join(hello))
                        if answers[-1]:
                            with Stranger(seed.address.port) as second:
                                answers.append(second.join(hello))
                            break
            return answers

        assert await to_thread(try_all) == [False, False, True, False]


@pytest.mark.parametrize(
    "broken",
    [
        frame_head(CHANNEL_RAFT, b"changed") + b"Changed",
        b"\xff" * 9,
        (FRAME_BYTES_MAX + 1).to_bytes(4, "little") + b"\1" + bytes(4),
        frame_head(77, b""),
        frame_head(CHANNEL_CONTROL, b"\x81") + b"\x81",
        frame_head(CHANNEL_RPC, b"\7") + b"\7",
        frame_head(CHANNEL_RPC, b"\1" + bytes(8) + b"\xff\xff") + b"\1" + bytes(8) + b"\xff\xff",
    ],
    ids=["changed", "garbage", "oversize", "channel", "control", "call", "method"],
)
async def test_who_has_proved_itself_and_breaks_the_protocol_is_dropped_and_kept_out_for_a_while(
    broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    seed = Node("seed")
    async with running(seed):
        handled = frames_of(seed)

        def misbehave() -> None:
            for attempt in range(3):
                with Stranger(seed.address.port) as stranger, suppress(ConnectionError):
                    if not stranger.join():
                        continue
                    stranger.introduce()
                    stranger.sock.sendall(broken + frame_head(CHANNEL_RAFT, b"after") + b"after")
                    assert stranger.is_hung_up_on(), attempt

        await to_thread(misbehave)
        await until_left_alone(seed)
        assert handled == []
        assert [what for what, _ in seed.events] == ["up", "down"]
        assert len(complaints(caplog)) == 2, "the end, and that it is not wanted"


async def test_a_node_that_broke_the_protocol_is_linked_again_when_its_time_is_over() -> None:
    seed = Node("seed")
    async with running(seed):

        def join_and(then: bytes) -> bool:
            with Stranger(seed.address.port) as stranger, suppress(ConnectionError):
                stranger.join()
                stranger.introduce()
                stranger.sock.sendall(then)
                return stranger.is_hung_up_on()
            return False

        await to_thread(join_and, b"\xff" * 9)
        [stranger_id] = seed.mesh.peers
        assert seed.mesh._known._penalties[stranger_id][0] > seed.clock.mono_ns()
        seed.clock.ahead_ns += PENALTY_NS + NS_PER_S
        await to_thread(join_and, b"\xff" * 9)
        assert [what for what, _ in seed.events] == ["up", "down"] * 2


async def test_a_crowd_of_silent_strangers_keeps_no_node_out(caplog: pytest.LogCaptureFixture) -> None:
    seed = Node("seed")
    async with running(seed) as nursery:
        crowd = [await trio.open_tcp_stream("127.0.0.1", seed.address.port) for _ in range(3 * HANDSHAKES_MAX)]
        other = Node("other", routes=(seed.address,))
        await nursery.start(other.mesh.run)
        await other.wait_up(seed)
        assert len(seed.mesh._connector._strangers) <= HANDSHAKES_MAX
        for stream in crowd:
            await stream.aclose()
        assert len(complaints(caplog)) <= 3


async def test_a_name_of_many_clusters_makes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    seed = Node("seed")
    async with running(seed):

        def knock() -> None:
            for number in range(30):
                with Stranger(seed.address.port, cluster=f"cluster {number}") as stranger, suppress(ConnectionError):
                    stranger.join()

        await to_thread(knock)
        assert seed.mesh.statistics().handshakes_refused == 30
        assert len(complaints(caplog)) == 1


class FlippingProxy:
    """Carries the bytes of connections to a target, and flips a bit now and then."""

    def __init__(self, target: Address, dice: random.Random, every_bytes: int) -> None:
        self._target = target
        self._dice = dice
        self._every_bytes = every_bytes
        self.flips = 0
        self.address = LOOPBACK

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = Address("127.0.0.1", listener.socket.getsockname()[1])
        task_status.started()
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, stream: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            other = await trio.open_tcp_stream(self._target.host, self._target.port)
            async with stream, other, trio.open_nursery() as nursery:
                nursery.start_soon(self._carry, stream, other, nursery.cancel_scope)
                nursery.start_soon(self._carry, other, stream, nursery.cancel_scope)

    async def _carry(self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope) -> None:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                carried = bytearray(data)
                if self._dice.randrange(self._every_bytes) < len(carried):
                    carried[self._dice.randrange(len(carried))] ^= 1 << self._dice.randrange(8)
                    self.flips += 1
                await target.send_all(carried)
        scope.cancel()


@pytest.mark.parametrize("seed", range(3))
async def test_a_proxy_that_flips_bits_changes_nothing_that_is_believed(seed: int) -> None:
    """Whatever arrives was sent, in order, once per session; what was changed ends the session, and it comes back."""
    dice = random.Random(seed)
    one, other = Node("one"), Node("other")
    async with running(one, other) as nursery:
        arrived = frames_of(other)
        proxy = FlippingProxy(other.address, dice, every_bytes=20_000)
        await nursery.start(proxy.run)
        one.mesh._connector.dial(proxy.address)
        sent: Counter[bytes] = Counter()
        number = 0
        before_flip = 0
        with trio.fail_after(PATIENCE_S):
            while not proxy.flips or len(arrived) < before_flip + AGAIN:
                before_flip = before_flip if proxy.flips else len(arrived)
                for mesh in (one.mesh, other.mesh):
                    mesh._known._penalties.clear()
                for _ in range(20):
                    number += 1
                    payload = b"%d " % number * dice.randrange(1, 50)
                    sent[payload] += one.mesh.send(other.mesh.node_id, CHANNEL_RAFT, payload)
                one.mesh.flush()
                await trio.lowlevel.checkpoint()
        assert all(sent[payload] for _, payload in arrived), "nothing that was not sent"
        numbers = [int(payload.split()[0]) for _, payload in arrived]
        assert numbers == sorted(set(numbers)), "in order, once"


async def test_who_sends_a_greeting_back_does_not_have_a_configured_route_given_up() -> None:
    with trio.socket.socket() as listening:
        await listening.bind(("127.0.0.1", 0))
        listening.listen()
        node = Node("one", routes=(Address(*listening.getsockname()),))
        async with running(node):
            with trio.fail_after(PATIENCE_S):
                connection, _ = await listening.accept()
                stream = trio.SocketStream(connection)
                greeting = b""
                while len(greeting) < HELLO_BYTES:
                    greeting += await stream.receive_some(HELLO_BYTES - len(greeting))
                await stream.send_all(greeting)
                assert await stream.receive_some(1) == b""
                await stream.aclose()
                assert node.mesh.own_routes == 1
                again, _ = await listening.accept()
                again.close()
                while node.mesh.own_routes:
                    await trio.testing.wait_all_tasks_blocked(0.005)
