"""Publishes that reach a stream's leader while it hands leadership over (decision 92).

From the beginning of a transfer the leader admits nothing; it holds what it captures. If the transfer leads nowhere it
admits that, in order. If another member was elected because this one had asked it to, that member asks for what
is held before it captures anything itself:

    the old leader    ends its interest, and still captures what comes from nodes that have not heard of that
                      asks each of them for a sign, behind which nothing comes any more: the fence
                      answers with all that it holds, and captures nothing from then on
    the new leader    captures, and admits what it was given as if clients had sent it

So each message is captured by one of the two: the new leader has no interest before the old one has none. What is held
is given once; an answer that is lost is a publish without an answer, as when a leader is killed. A leader that hands
over before it has its answer passes that on (`ExpectedHeld`).

A leader that has gone is not waited for: without a link the question fails at once, when the link ends too. One that
stands still behind its link is found out by a sign that it gives before any fence. Its messages are dropped when it
goes on, so a message that both have captured is admitted by the new leader alone. Should the old one lead again within
that time, it admits what it holds only if its log has no entry of a leader in between: what that one has acknowledged
is committed, and so in the log of each member that is elected later.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from jetraft.cluster.calls.messages.handing_over import (
    FENCE,
    HELD_BYTES_MAX,
    METHOD,
    QUESTION_BYTES_MAX,
    HandoverQuestion,
    HeldMessages,
)
from jetraft.cluster.calls.waiting import ask_for, ask_peer
from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import TRACED_ONLY, TRACED_ORIGIN, SinkKind
from jetraft.store.model.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.cluster.ports import Outbox, TimerHandle, Timers
    from jetraft.raft.engine.port import Engine
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.port import GroupLog

KEEP_NS: Final = 500 * NS_PER_MS  # a member that was asked to lead does so in some 20 ms, and asks at once
ASK_S: Final = 0.5  # the new leader captures nothing as long as it waits
SIGN_S: Final = 0.15  # by then a node that runs has said so; a pause for garbage is shorter
FENCE_S: Final = 0.2  # a node that gives no sign may have sent something that gets no answer


class HandingGroup(Protocol):
    """A stream's group as handing over needs it."""

    @property
    def group_id(self) -> GroupId:
        """Its name."""

    @property
    def incarnation(self) -> int:
        """Which of this name."""

    @property
    def term(self) -> int:
        """The term that it is in."""

    @property
    def log(self) -> GroupLog:
        """Its entries."""

    @property
    def core(self) -> Engine:
        """The engine: it knows the handovers."""


def newest_before(group: HandingGroup) -> int | None:
    """Of a leader: the term of the newest entry that is not of its own term; None when that is damaged."""
    start = group.core.term_start_index
    term = group.log.term_at(start)
    return group.log.term_at(start - 1) if term == group.term else term  # a term may begin with an entry of its own


class HeldPublishes:
    """Messages that a leader has captured and not admitted; beyond HELD_BYTES_MAX they are dropped, unanswered."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.batches)

    def add(self, batch: bytes) -> None:
        """Hold what was captured in a turn."""
        if self._bytes + len(batch) <= HELD_BYTES_MAX:
            self.batches.append(batch)
            self._bytes += len(batch)

    def take(self) -> bytes:
        """All of it, in order. Traces of the turns in which it came have been sent: none of it is traced now."""
        held = b"".join(self.batches)
        self.batches, self._bytes = [], 0
        if any(found.origin & TRACED_ORIGIN for found in captures(held)):
            plain = [found for found in captures(held) if not _is_for_trace_only(found.origin)]
            held = b"".join(encode_capture(one.subject, one.reply, one.hdr, one.payload) for one in plain)
        return held


def _is_for_trace_only(origin: int) -> bool:
    return origin & TRACED_ORIGIN != 0 and origin & TRACED_ONLY != 0


@attrs.define(eq=False, kw_only=True)
class Left:
    """The messages that a leader leaves behind, for a while. `term` is the one that it led in."""

    term: int
    held: HeldPublishes = attrs.field(factory=HeldPublishes)
    timer: TimerHandle | None = attrs.field(default=None, init=False)

    def keep_until(self, timers: Timers, mono_ns: int, drop: Callable[[], None]) -> None:
        """Be dropped at this time, if it has not ended before."""
        self.timer = timers.call_at(mono_ns, drop)

    def end(self) -> bytes:
        """Take no more; returns what is held."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return self.held.take()


@attrs.define(eq=False, kw_only=True)
class LeftSink(Left):
    """The sink of a leader that has handed over: it captures on until the next one asks."""

    outbox: Outbox
    handle: int
    subjects: tuple[str, ...]

    def end_interest(self) -> None:
        """Nodes are told to send nothing more; what they send until they have heard is captured."""
        handle = self.outbox.add_sink(self.subjects[0].encode(), self.held.add, kind=SinkKind.STREAM, local_only=True)
        for subject in self.subjects[1:]:
            self.outbox.extend_sink(handle, subject.encode(), local_only=True)
        self.outbox.remove_sink(self.handle)
        self.handle = handle

    def end(self) -> bytes:
        """Capture no more; returns what is held."""
        self.outbox.remove_sink(self.handle)
        return super().end()


@attrs.define(eq=False, kw_only=True)
class ExpectedHeld(Left):
    """Messages for which a leader that hands over has asked the one before it: it captures none, and gives these on."""

    arrived: trio.Event = attrs.field(factory=trio.Event, init=False)

    def arrive(self, batch: bytes) -> None:
        """The answer is here."""
        self.held.add(batch)
        self.arrived.set()


class Handovers:
    """Both sides of one node. One task (`run`) asks old leaders, and sets fences."""

    def __init__(self, *, mesh: MeshLike, timers: Timers, clock: Clock) -> None:
        self._mesh = mesh
        self._timers = timers
        self._clock = clock
        self._left: dict[tuple[str, int], LeftSink | ExpectedHeld] = {}
        self._serving = 0
        self._wanted: list[tuple[HandingGroup, NodeId, Callable[[bytes], None]]] = []
        self._woken = trio.Event()
        self._fence_passed = trio.Event()  # of the fence that has not begun yet
        self._is_fence_wanted = False
        mesh.serve(METHOD, self._serve, request_bytes_max=QUESTION_BYTES_MAX)
        mesh.serve(FENCE, _pass)

    @property
    def is_waited_for(self) -> bool:
        """Whether another node has yet to fetch what is held here."""
        return bool(self._left) or self._serving > 0

    # The old leader.

    def leave(self, group: HandingGroup, left: LeftSink | ExpectedHeld) -> None:
        """Hold what is captured, or comes, until the next leader fetches it, for KEEP_NS at most."""
        key = (str(group.group_id), group.incarnation)
        self._drop(key)
        self._left[key] = left
        left.keep_until(self._timers, self._clock.mono_ns() + KEEP_NS, partial(self._drop, key))

    def take_back(self, group: HandingGroup, *, newest_before: int | None) -> bytes:
        """The held messages, for this node leads again, and no other has fetched it.

        `newest_before` is the term of the newest entry from before. When it is a term in between, or is not known,
        another member led that found this one silent, and may have stored the same messages: they are dropped.
        """
        left = self._left.pop((str(group.group_id), group.incarnation), None)
        if left is None:
            return b""
        held = left.end()
        return held if newest_before is not None and newest_before <= left.term else b""

    def _drop(self, key: tuple[str, int]) -> None:
        left = self._left.pop(key, None)
        if left is not None:
            left.end()

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        question = HandoverQuestion.unpack(payload)
        left = self._left.pop((question.group_id, question.incarnation), None)
        if left is None:
            return HeldMessages(batch=b"").pack()
        self._serving += 1
        try:
            if isinstance(left, ExpectedHeld):
                with trio.move_on_after(ASK_S):
                    await left.arrived.wait()
            else:
                left.end_interest()
                await self._fence(left.outbox)
        finally:
            self._serving -= 1
            held = left.end()
        return HeldMessages(batch=held).pack()

    async def _fence(self, outbox: Outbox) -> None:
        """Return when all nodes have heard of what was told until now; groups of one moment share a fence."""
        told = trio.Event()
        outbox.later(told.set)
        await told.wait()  # the turn in which peers are told is over when this task goes on
        passed = self._fence_passed
        self._is_fence_wanted = True
        self._woken.set()
        await passed.wait()

    # The new leader.

    def fetch(self, group: HandingGroup, take: Callable[[bytes], None]) -> None:
        """Ask the leader before for what it holds; `take` is called once, with nothing when it does not answer."""
        assert group.core.handed_by is not None
        self._wanted.append((group, group.core.handed_by, take))
        self._woken.set()

    async def _fetch(self, group: HandingGroup, node: NodeId, take: Callable[[bytes], None]) -> None:
        question = HandoverQuestion(group_id=str(group.group_id), incarnation=group.incarnation).pack()
        held = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up_without_a_sign, node, nursery.cancel_scope)
            answer = await ask_for(HeldMessages, self._mesh, node, METHOD, question, timeout_s=ASK_S)
            held = b"" if answer is None else answer.batch
            nursery.cancel_scope.cancel()
        take(held)

    async def _give_up_without_a_sign(self, node: NodeId, asking: trio.CancelScope) -> None:
        """Cancel the question when the node does not say that it runs."""
        if await ask_peer(self._mesh, node, FENCE, b"", timeout_s=SIGN_S) is None:
            asking.cancel()

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._woken.wait()
                self._woken = trio.Event()
                wanted, self._wanted = self._wanted, []
                for group, node, take in wanted:
                    nursery.start_soon(self._fetch, group, node, take)
                if self._is_fence_wanted:
                    passed, self._fence_passed = self._fence_passed, trio.Event()
                    self._is_fence_wanted = False
                    nursery.start_soon(self._ask_all, passed)

    async def _ask_all(self, passed: trio.Event) -> None:
        with trio.move_on_after(FENCE_S):
            async with trio.open_nursery() as nursery:
                for node, peer in self._mesh.peers.items():
                    if peer.up:
                        nursery.start_soon(partial(ask_peer, self._mesh, node, FENCE, b"", timeout_s=FENCE_S))
        passed.set()


async def _pass(_sender: NodeId, _payload: bytes) -> bytes:
    """The answer leaves behind what this node has sent to the asking one before it heard of the question."""
    return b""
