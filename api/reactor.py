"""The turn: what one round of work on a node consists of, and the tasks that start it.

    plane.turn()          read, parse, route, capture
    plane.run_sinks()     one handler call per sink with its batch; then what was put off until large answers have left
    hooks                 Raft groups seal, append, send
    plane.take_routes()   one frame per peer
    plane.flush()         one send per dirty connection

Ready sockets, finished fsyncs, frames from peers and deadlines all end with the same `end_turn()`. It is synchronous:
between two of its steps no other task runs, so streams, consumers and groups need no locks.
"""

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import attrs
import trio

from jetraft.api.routing._plane import Plane
from jetraft.api.routing.interest import InterestWatches
from jetraft.store.model.clock import NS_PER_S, Clock

LINGER_TOTAL_NS = 2_000_000  # timers and other tasks of trio are late by this at most
HOUSEKEEPING_S = 0.5
WRITES_PER_TURN = 4  # a write may lead to another; what is left after these waits for the next turn

Parameters = ParamSpec("Parameters")
ClosedHandler = Callable[[int, int, dict[str, Any] | None], None]


class SchedulingProbe(trio.abc.Instrument):
    """Tells the reactor that some task has become runnable, so that it does not keep it waiting."""

    def __init__(self, reactor: "Reactor") -> None:
        self._reactor = reactor

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        del task
        self._reactor._scheduled = True  # noqa: SLF001  a part of the reactor


@attrs.define(eq=False)
class Reactor:
    """Runs turns. Everything that wants to act at the end of a turn registers a hook before `run`."""

    plane: Plane
    clock: Clock
    on_closed: ClosedHandler
    send_route: Callable[[int, bytes], None]
    hooks: list[Callable[[], None]] = attrs.field(factory=list)
    write: Callable[[], bool] = lambda: False  # after everything was sent; True when the hooks have to run again
    after_send: Callable[[], None] = lambda: None  # links send what the turn queued for peers
    route_bytes: Callable[[int], int] = lambda _route: 0  # what waits in the link behind a route
    next_deadline_ns: Callable[[], int] = lambda: 2**63
    interest: InterestWatches = attrs.field(init=False)
    turns: int = 0
    _watched: dict[int, Callable[[], None] | None] = attrs.field(factory=dict)
    _later: list[Callable[[], None]] = attrs.field(factory=list)
    _scheduled: bool = False
    _inside: bool = False
    _before_hooks: bool = False
    _kick: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.interest = InterestWatches(self.plane)

    def end_turn(self) -> None:
        """Let every layer act on what has come in, then send. Calls from inside a turn fold into it."""
        if self._inside:
            return
        self._inside = self._before_hooks = True
        try:
            self.plane.run_sinks()
            if self._later:
                self._run_later()
            self.interest.run()
            for _ in range(WRITES_PER_TURN):
                self._before_hooks = False
                for hook in self.hooks:
                    hook()
                self.plane.run_sinks()
                if self._later:
                    self._run_later()
                self._send(self.plane.flush())
                self._forward()
                self.after_send()
                self._before_hooks = True
                if not self.write():
                    break
            else:
                self._kick.set()
        finally:
            self._inside = self._before_hooks = False
            self.turns += 1

    def later(self, callback: Callable[[], None]) -> None:
        """Call back in this turn, when the batches captured so far were handled: their receivers work meanwhile."""
        self._later.append(callback)
        self.kick_outside()

    def _run_later(self) -> None:
        self.plane.send_much()
        callbacks, self._later = self._later, []
        for callback in callbacks:
            callback()

    def send_early(self) -> None:
        """Within the hooks: what is ready leaves before the rest of the turn's work."""
        self._send(self.plane.flush())
        if self._forward():
            self.after_send()

    def _send(self, closed: Sequence[tuple[int, int, dict[str, Any] | None]]) -> None:
        for cid, reason, counters in closed:
            self.on_closed(cid, reason, counters)

    def _forward(self) -> bool:
        routes = self.plane.take_routes()
        for route_id, records in routes:
            self.send_route(route_id, records)
        return bool(routes)

    def within_turn(self, function: Callable[Parameters, None]) -> Callable[Parameters, None]:
        """Make a callback that belongs to a turn: `end_turn` follows it, so what it queues needs no turn of its own."""

        def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
            was = self._inside, self._before_hooks
            self._inside = self._before_hooks = True
            try:
                function(*args, **kwargs)
            finally:
                self._inside, self._before_hooks = was

        return run

    def kick(self) -> None:
        """Ask for a turn soon: something was queued outside of one."""
        self._kick.set()

    def kick_outside(self) -> None:
        """Ask for a turn unless one is running, which will send what is queued now."""
        if not self._inside:
            self._kick.set()

    def kick_for_hooks(self) -> None:
        """Ask for a turn unless the hooks of one are still to come: something was queued for them."""
        if not self._before_hooks:
            self._kick.set()

    def watch(self, fd: int, on_ready: Callable[[], None] | None = None) -> None:
        """Let turns notice this descriptor: call `on_ready` in the turn, or go back to trio for its task."""
        self._watched[fd] = None if on_ready is None else self.within_turn(on_ready)
        self.plane.watch(fd)

    def unwatch(self, fd: int) -> None:
        """Stop; before the descriptor is closed."""
        if self._watched.pop(fd, self) is not self:
            self.plane.unwatch(fd)

    async def run_sockets(self) -> None:
        """Turns for ready client sockets.

        After a turn the next event is waited for right here for a moment, because a trip through the scheduler costs
        more than most turns. The lingering ends when another task becomes runnable, a descriptor that belongs to
        another task is ready, a deadline comes near, or LINGER_TOTAL_NS have passed.
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
                now_ns = self.clock.mono_ns()
                if leave or self._scheduled or now_ns >= leave_ns:
                    break
                wait_ns = min(leave_ns, self.next_deadline_ns()) - now_ns
            # Bounded by LINGER_TOTAL_NS and one turn.
            await trio.lowlevel.checkpoint()

    def _run_watched(self) -> bool:
        """Serve ready descriptors of others; True when one of them needs its task to run."""
        leave = False
        for fd in self.plane.take_ready():
            on_ready = self._watched.get(fd)
            if on_ready is None:
                leave = True
            else:
                on_ready()
        return leave

    async def _wait_ready(self) -> None:
        """Wait for a ready socket, or for the moment when a paused producer may be read again."""
        wake_ns = self.plane.next_wake_ns()
        if not wake_ns:
            await trio.lowlevel.wait_readable(self.plane.fileno())
            return
        with trio.move_on_after(max(0, wake_ns - self.clock.mono_ns()) / NS_PER_S):
            await trio.lowlevel.wait_readable(self.plane.fileno())

    async def run_kicks(self) -> None:
        """Turns that were asked for."""
        while True:
            await self._kick.wait()
            self._kick = trio.Event()
            self.end_turn()

    async def run_housekeeping(self, *, ping_interval_ns: int, ping_max: int, write_deadline_ns: int) -> None:
        """Pings, stale and stuck connections, idle buffers."""
        while True:
            await trio.sleep(HOUSEKEEPING_S)
            self.plane.housekeeping(ping_interval_ns, ping_max, write_deadline_ns)
            self.end_turn()

    def statistics(self) -> dict[str, int]:
        """Turns taken, beside the plane's own counters."""
        return {"turns_ended": self.turns, **self.plane.statistics()}
