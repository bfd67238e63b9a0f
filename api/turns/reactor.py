"""The turn: the steps of one round of work on a node, and the tasks that start it.

    plane.turn()          read, parse, route, capture
    plane.run_sinks()     one handler call per sink with its batch; then callbacks that were deferred with `later`
    groups.flush()        Raft groups seal, append, queue messages for peers
    plane.flush()         one send per dirty connection
    plane.take_routes()   one frame per peer, then peers.flush()
    groups.write()        a log writes, after everything was sent

Ready sockets, finished fsyncs, frames from peers and deadlines all end with the same `end_turn()`. It is synchronous:
between two of its steps no other task runs, so streams, consumers and groups need no locks.
"""

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol

import attrs
import trio

from jetraft.api.plane._plane import Plane
from jetraft.api.plane.interest import InterestWatches
from jetraft.api.plane.reasons import Reason
from jetraft.store.model.clock import NS_PER_S, Clock, tick_s
from jetraft.store.model.histogram import Histogram

LINGER_TOTAL_NS = 2_000_000  # the most by which a turn delays timers and other trio tasks
HOUSEKEEPING_S = 0.5
WRITES_PER_TURN = 4  # one write may lead to another; the rest waits for the next turn

Parameters = ParamSpec("Parameters")
ClosedHandler = Callable[[int, int, dict[str, Any] | None], None]


class GroupTurns(Protocol):
    """The part of the Raft groups in a turn. Implemented by api/jetstream/groups.py."""

    def flush(self) -> None:
        """Advance every group that has something to do and queue its messages for peers."""

    def write(self) -> bool:
        """Write what the groups appended, after everything was sent; True when `flush` has to run again."""


class PeerLinks(Protocol):
    """The links to peers, as a turn sees them. Implemented by api/routes.py."""

    def send(self, route: int, records: bytes) -> None:
        """Queue the records of a turn for the peer behind a route."""

    def queued_bytes(self, route: int) -> int:
        """The bytes that wait in the link behind a route."""

    def flush(self) -> None:
        """Send what was queued for all peers."""


class NoGroups:
    """The groups of a server without JetStream."""

    def flush(self) -> None:
        """Do nothing."""

    def write(self) -> bool:
        """Return False: there is nothing to write."""
        return False


class NoPeers:
    """The peers of a server without a cluster."""

    def send(self, route: int, records: bytes) -> None:
        """Never called: the plane has no routes."""

    def queued_bytes(self, _route: int) -> int:
        """Return 0."""
        return 0

    def flush(self) -> None:
        """Do nothing."""


class SchedulingProbe(trio.abc.Instrument):
    """Tells the reactor that a task has become runnable, so that a turn does not delay it."""

    def __init__(self, reactor: "Reactor") -> None:
        self._reactor = reactor

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        del task
        self._reactor._scheduled = True  # noqa: SLF001  a part of the reactor


@attrs.define(eq=False)
class Reactor:
    """Runs turns. `on_closed` is called with the id, reason and last counters of each connection that ends.

    Groups and links need the reactor to ask for turns, and a turn needs them. So they are made above it and connected
    with `connect_groups` and `connect_peers` before the first turn.
    """

    plane: Plane
    clock: Clock
    on_closed: ClosedHandler
    interest: InterestWatches = attrs.field(init=False)
    turns: int = 0
    times: Histogram = attrs.field(factory=Histogram)  # of turns
    _groups: GroupTurns = attrs.field(factory=NoGroups, init=False)
    _peers: PeerLinks = attrs.field(factory=NoPeers, init=False)
    _watched: dict[int, Callable[[], None] | None] = attrs.field(factory=dict)
    _later: list[Callable[[], None]] = attrs.field(factory=list)
    _scheduled: bool = False
    _ended_ns: int = 0  # when the last turn was over
    _inside: bool = False
    _before_groups: bool = False
    _kick: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.interest = InterestWatches(self.plane)

    def connect_groups(self, groups: GroupTurns) -> None:
        """Make the Raft groups part of each turn; once, before the first turn."""
        assert isinstance(self._groups, NoGroups)
        self._groups = groups

    def connect_peers(self, peers: PeerLinks) -> None:
        """Make the links to peers part of each turn; once, before the first turn."""
        assert isinstance(self._peers, NoPeers)
        self._peers = peers

    def route_bytes(self, route: int) -> int:
        """The bytes that wait in the link behind a route."""
        return self._peers.queued_bytes(route)

    def end_turn(self) -> None:
        """Let every layer act on what was received, then send. A call from inside a turn does nothing."""
        if self._inside:
            return
        self._inside = self._before_groups = True
        began_ns = self.clock.mono_ns()
        try:
            plane, groups = self.plane, self._groups
            plane.run_sinks()
            if self._later:
                self._run_later()
            if self.interest.watched:
                self.interest.run()
            for _ in range(WRITES_PER_TURN):
                self._before_groups = False
                groups.flush()
                plane.run_sinks()
                if self._later:
                    self._run_later()
                if closed := plane.flush():
                    self._tell_closed(closed)
                if routes := plane.take_routes():
                    self._forward(routes)
                self._peers.flush()
                self._before_groups = True
                if not groups.write():
                    break
            else:
                self._kick.set()
        finally:
            self._inside = self._before_groups = False
            self.turns += 1
            self._ended_ns = self.clock.mono_ns()
            self.times.note(self._ended_ns - began_ns)

    def close_all(self, reason: Reason) -> None:
        """Close all connections, after what is queued for them; the last turn, when all else has ended."""
        for cid in self.plane.connection_ids():
            self.plane.close(cid, reason)
        self._tell_closed(self.plane.flush())

    def later(self, callback: Callable[[], None]) -> None:
        """Call back in this turn, after the sinks' handlers ran and large output was sent.

        The receivers of that output work at the same time.
        """
        self._later.append(callback)
        self.kick_outside()

    def next_turn(self, callback: Callable[[], None]) -> None:
        """The same, in a turn that is asked for: this one may be past that."""
        self._later.append(callback)
        self._kick.set()

    def _run_later(self) -> None:
        self.plane.send_much()
        callbacks, self._later = self._later, []
        for callback in callbacks:
            callback()

    def send_early(self) -> None:
        """Send what is ready before the rest of the turn's work; called by groups inside `flush`."""
        if closed := self.plane.flush():
            self._tell_closed(closed)
        if routes := self.plane.take_routes():
            self._forward(routes)
            self._peers.flush()

    def _tell_closed(self, closed: Sequence[tuple[int, int, dict[str, Any] | None]]) -> None:
        for cid, reason, counters in closed:
            self.on_closed(cid, reason, counters)

    def _forward(self, routes: Sequence[tuple[int, bytes]]) -> None:
        for route_id, records in routes:
            self._peers.send(route_id, records)

    def within_turn(self, function: Callable[Parameters, None]) -> Callable[Parameters, None]:
        """Wrap a callback that `end_turn` follows, so that what it queues does not ask for another turn."""

        def run(*args: "Parameters.args", **kwargs: "Parameters.kwargs") -> None:
            was = self._inside, self._before_groups
            self._inside = self._before_groups = True
            try:
                function(*args, **kwargs)
            finally:
                self._inside, self._before_groups = was

        return run

    def kick(self) -> None:
        """Ask for a turn: something was queued outside of one."""
        self._kick.set()

    def kick_outside(self) -> None:
        """Ask for a turn, unless one is running: it sends what is queued now."""
        if not self._inside:
            self._kick.set()

    def kick_for_groups(self) -> None:
        """Ask for a turn, unless the groups' part of one is still to come: a group has something to do."""
        if not self._before_groups:
            self._kick.set()

    def watch(self, fd: int, on_ready: Callable[[], None] | None = None) -> None:
        """End a waiting turn when this descriptor is readable, then call `on_ready` in the turn.

        Without `on_ready` the reactor returns to trio, where a task waits for the descriptor.
        """
        self._watched[fd] = None if on_ready is None else self.within_turn(on_ready)
        self.plane.watch(fd)

    def unwatch(self, fd: int) -> None:
        """Stop watching; call it before the descriptor is closed."""
        if self._watched.pop(fd, self) is not self:
            self.plane.unwatch(fd)

    async def run_sockets(self, next_deadline_ns: Callable[[], int]) -> None:
        """Run turns for ready client sockets; `next_deadline_ns` is the earliest timer, in monotonic nanoseconds.

        After a turn this waits for the next event in compiled code for a moment, because a pass of the scheduler costs
        more than most turns. The wait ends when another task becomes runnable, a descriptor that belongs to another
        task is ready, the next deadline comes, or LINGER_TOTAL_NS have passed.
        """
        trio.lowlevel.add_instrument(SchedulingProbe(self))
        while True:
            await self._wait_ready()
            self._scheduled = False
            leave_ns = self.clock.mono_ns() + LINGER_TOTAL_NS
            wait_ns = 0
            while self.plane.turn(wait_ns) > 0:
                leave = self._run_watched()
                self.end_turn()
                now_ns = self._ended_ns
                self.plane.note_turn(now_ns)
                if leave or self._scheduled or now_ns >= leave_ns:
                    break
                wait_ns = min(leave_ns, next_deadline_ns()) - now_ns

    def _run_watched(self) -> bool:
        """Call the handlers of ready watched descriptors; True when one of them needs its task to run."""
        leave = False
        for fd in self.plane.take_ready():
            on_ready = self._watched.get(fd)
            if on_ready is None:
                leave = True
            else:
                on_ready()
        return leave

    async def _wait_ready(self) -> None:
        """Wait for a ready socket, or until a paused producer may be read again.

        Other tasks run meanwhile, also where a socket is ready already: trio asks the system in its next pass. So they
        wait for LINGER_TOTAL_NS and one turn at most.
        """
        wake_ns = self.plane.next_wake_ns()
        if not wake_ns:
            await trio.lowlevel.wait_readable(self.plane.fileno())
            return
        with trio.move_on_after(max(0, wake_ns - self.clock.mono_ns()) / NS_PER_S):
            await trio.lowlevel.wait_readable(self.plane.fileno())

    async def run_kicks(self) -> None:
        """Run turns that were asked for with `kick`."""
        while True:
            await self._kick.wait()
            self._kick = trio.Event()
            self.end_turn()

    async def run_housekeeping(self, patience: Callable[[], tuple[int, int, int, int]]) -> None:
        """Every HOUSEKEEPING_S: send pings, close stale and stuck connections, free idle buffers.

        `patience` gives the interval between pings, how many are sent, and the write deadlines of clients
        and of leaf nodes (0: the same), in nanoseconds.
        """
        while True:
            await trio.sleep_until(tick_s(trio.current_time(), HOUSEKEEPING_S))
            self.plane.housekeeping(*patience())
            self.end_turn()

    def statistics(self) -> dict[str, int]:
        """The number of turns, and the plane's counters."""
        return {"turns_ended": self.turns, **self.plane.statistics()}
