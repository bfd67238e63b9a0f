"""Priorities and back-pressure of one link, over a socket pair that nobody, or a test, reads."""

import socket
from collections.abc import Callable
from typing import Self

import pytest
import trio
import trio.testing

from jetraft.raft.mesh.framing import (
    CHANNEL_BULK,
    CHANNEL_CONTROL,
    CHANNEL_RAFT,
    CHANNEL_ROUTE,
    CHANNEL_RPC,
    FrameDecoder,
    frame_head,
)
from jetraft.raft.mesh.link import QUEUE_BYTES_MAX, SEND_BYTES, Link, Sockets
from jetraft.raft.mesh.wires import SocketWire
from jetraft.store.model.clock import NS_PER_S, ManualClock
from jetraft.store.model.ids import NodeId
from tests.harness.patience import PATIENCE_S


class Pair:
    """A link, and the other end of its socket."""

    def __init__(self, sockets: Sockets | None = None) -> None:
        own, self.other = socket.socketpair()
        own.settimeout(0)
        self.other.settimeout(0)
        self.clock = ManualClock()
        self.link = Link(SocketWire(own), node_id=NodeId("n" * 8), session=1, boot=1, clock=self.clock, sockets=sockets)
        self.reader = FrameDecoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.abandon()
        self.other.close()

    def received(self) -> list[tuple[int, bytes]]:
        """The frames that have arrived by now."""
        frames: list[tuple[int, bytes]] = []
        while True:
            try:
                count = self.other.recv_into(self.reader.space())
            except BlockingIOError:
                return frames
            if count == 0:
                return frames
            self.reader.received(count, lambda channel, payload: frames.append((channel, bytes(payload))))

    def drain(self) -> list[tuple[int, bytes]]:
        """Everything that is queued."""
        frames = []
        while self.link.queued_bytes:
            self.link.flush()
            frames += self.received()
        return frames


def test_what_is_urgent_overtakes_what_is_bulky_but_nothing_overtakes_inside_a_channel() -> None:
    with Pair() as pair:
        for channel in (CHANNEL_BULK, CHANNEL_ROUTE, CHANNEL_RPC, CHANNEL_RAFT, CHANNEL_CONTROL):
            for payload in (b"1", b"2"):
                pair.link.send(channel, payload)
        pair.link.flush()
        assert pair.received() == [(channel, payload) for channel in range(5) for payload in (b"1", b"2")]


def test_a_question_of_a_client_does_not_overtake_the_core_messages_before_it() -> None:
    with Pair() as pair:
        pair.link.send(CHANNEL_ROUTE, b"published")
        pair.link.send(CHANNEL_RPC, b"asked", behind=CHANNEL_ROUTE)
        pair.link.send(CHANNEL_ROUTE, b"published after")
        pair.link.send(CHANNEL_RPC, b"asked by a node")
        pair.link.flush()
        route = [(CHANNEL_ROUTE, b"published"), (CHANNEL_RPC, b"asked"), (CHANNEL_ROUTE, b"published after")]
        assert pair.received() == [(CHANNEL_RPC, b"asked by a node"), *route]


def test_a_heartbeat_waits_for_one_join_of_bulk_at_most() -> None:
    with Pair() as pair:
        for _ in range(100):
            pair.link.send(CHANNEL_BULK, bytes(100_000))
        pair.link.flush()
        pair.link.send(CHANNEL_RAFT, b"heartbeat")
        frames = pair.drain()
        before = sum(len(payload) for _, payload in frames[: frames.index((CHANNEL_RAFT, b"heartbeat"))])
        in_socket = pair.other.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) * 2
        assert before <= in_socket + SEND_BYTES + 100_000
        assert len(frames) == 101


def test_a_peer_that_does_not_read_ends_the_session_at_a_bound() -> None:
    with Pair() as pair:
        sent = 0
        while pair.link.send(CHANNEL_ROUTE, bytes(1 << 20)):
            pair.link.flush()
            sent += 1
        assert sent <= QUEUE_BYTES_MAX >> 20 or pair.link.queued_bytes <= QUEUE_BYTES_MAX + (1 << 20) + SEND_BYTES
        assert pair.link.closed_because == f"more than {QUEUE_BYTES_MAX} bytes wait for it"
        assert not pair.link.send(CHANNEL_CONTROL, b"")


def test_the_bound_is_the_link_s_own() -> None:
    with Pair() as pair:
        pair.link.queue_bytes_max = 3 << 20
        while pair.link.send(CHANNEL_ROUTE, bytes(1 << 20)):
            assert pair.link.queued_bytes <= 3 << 20
        assert pair.link.closed_because == f"more than {3 << 20} bytes wait for it"


def test_keepalives_are_for_links_that_say_nothing() -> None:
    with Pair() as pair:
        pair.link.keep_alive(NS_PER_S)
        assert pair.link.queued_bytes == 0
        pair.clock.advance(NS_PER_S)
        pair.link.keep_alive(NS_PER_S)
        pair.link.keep_alive(NS_PER_S)
        pair.link.flush()
        assert pair.received() == [(CHANNEL_CONTROL, b"")]


@pytest.mark.parametrize("cut", [1, 8, 9, 12])
async def test_a_frame_that_ends_early_is_never_handed_out(cut: int) -> None:
    frames: list[bytes] = []
    with Pair() as pair:
        whole = frame_head(CHANNEL_RAFT, b"whole") + b"whole"
        pair.other.send(whole + whole[:cut])
        pair.other.shutdown(socket.SHUT_WR)
        with trio.fail_after(PATIENCE_S):
            await pair.link.run(lambda _channel, payload: frames.append(bytes(payload)), lambda: None)
        assert frames == [b"whole"]
        assert pair.link.closed_because == "the peer closed the connection"


async def test_a_frame_that_was_changed_ends_the_session_after_those_before_it() -> None:
    frames: list[bytes] = []
    turns: list[int] = []
    with Pair() as pair:
        good = frame_head(CHANNEL_RAFT, b"good") + b"good"
        pair.other.send(good + good[:-1] + b"D" + good)
        with trio.fail_after(PATIENCE_S):
            await pair.link.run(
                lambda _channel, payload: frames.append(bytes(payload)), lambda: turns.append(len(frames))
            )
        assert (frames, turns) == ([b"good"], [1])
        assert pair.link.broke_protocol


class Turns:
    """Implements Sockets; the test says when a socket is ready."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[], None]] = {}
        self.kicks = 0

    def watch(self, fd: int, on_ready: Callable[[], None]) -> None:
        self.watched[fd] = on_ready

    def unwatch(self, fd: int) -> None:
        del self.watched[fd]

    def kick_outside(self) -> None:
        self.kicks += 1

    def ready(self) -> None:
        for on_ready in list(self.watched.values()):
            on_ready()


async def test_a_link_reads_where_turns_watch_its_socket_and_ends_when_the_peer_does() -> None:
    turns = Turns()
    frames: list[bytes] = []
    with Pair(turns) as pair:
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await pair.link.run(lambda _channel, payload: frames.append(bytes(payload)), lambda: None)

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            turns.ready()  # nothing there: nothing happens
            pair.other.send(frame_head(CHANNEL_RAFT, b"one") + b"one" + frame_head(CHANNEL_RAFT, b"two") + b"two")
            turns.ready()
            assert frames == [b"one", b"two"]
            assert pair.link.closed_because is None
            pair.other.shutdown(socket.SHUT_WR)
            turns.ready()
        assert pair.link.closed_because == "the peer closed the connection"
        assert not turns.watched


async def test_what_the_socket_does_not_take_in_a_turn_is_sent_when_it_can() -> None:
    turns = Turns()
    frames: list[tuple[int, bytes]] = []
    with Pair(turns) as pair:
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await pair.link.run(lambda _channel, _payload: None, lambda: None)

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(20):
                pair.link.send(CHANNEL_ROUTE, bytes(100_000))
            assert turns.kicks == 20
            pair.link.flush()
            assert pair.link.queued_bytes
            with trio.fail_after(PATIENCE_S):
                while len(frames) < 20:
                    await trio.lowlevel.wait_readable(pair.other)
                    frames += pair.received()
            assert not pair.link.queued_bytes
            nursery.cancel_scope.cancel()
