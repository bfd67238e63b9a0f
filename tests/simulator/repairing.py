"""Damaged logs inside the simulator: the real repair, with its calls as messages of the simulated network.

`Repairs.repair` (raft/recovery/repair.py) is a coroutine that waits for calls and for file work only. Here it is driven
by hand: file work is done at once, and a call goes on when its answer comes or its time is over. The answers are the
real ones.
"""

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgpack

from jetraft.raft.mesh.rpc import CallTimeoutError, RemoteCallError
from jetraft.raft.recovery import repair, repair_attempt
from jetraft.store.log.file_log import FileLog
from jetraft.store.model.ids import NodeId
from tests.simulator.world import MS, World

if TYPE_CHECKING:
    from tests.simulator.host import Host

CHANNEL_MISSING, CHANNEL_FRAMES = 6, 7
TIMEOUT_NS = 300 * MS
RETRY_NS = 200 * MS


class _Call:
    """One call under way: awaited by the repair, answered by the network or by the clock."""

    def __init__(self, to: NodeId, payload: bytes) -> None:
        self.to = to
        self.payload = payload

    def __await__(self) -> Generator["_Call", bytes | None, bytes | None]:
        return (yield self)


class SimRepairs:
    """One host's part, for one process. Implements what `Repairs` needs of the links."""

    def __init__(self, world: World, host: "Host") -> None:
        self._world = world
        self._host = host
        self._numbers = 0
        self._running: Coroutine[_Call, bytes | None, FileLog] | None = None
        self._done: Callable[[FileLog], None] | None = None
        self._repairs = repair.Repairs(host.manager, self)
        self.log: FileLog | None = None  # damaged, and waiting for others
        host.on_frame(CHANNEL_MISSING, self._on_request)
        host.on_frame(CHANNEL_FRAMES, self._on_answer)

    def serve(self, method: str, handler: Any) -> None:
        """See CallLinks. Requests are answered in `_on_request`."""

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        """See CallLinks."""
        del method, timeout_s, bulk
        answer = await _Call(to, payload)
        if answer is None:
            raise CallTimeoutError(f"{to} did not answer")
        if not answer:
            raise RemoteCallError(f"{to} has no group")
        return answer

    def start(self, log: FileLog, done: Callable[[FileLog], None]) -> None:
        """Repair the log, however often it takes; `done` gets it whole."""
        self.log, self._done = log, done
        self._running = self._repairs.repair(log, self._host.others)
        self._resume(None)

    def _resume(self, answer: bytes | None) -> None:
        """Go on with the repair until it calls somebody, or ends."""
        assert self._running is not None
        try:
            call = self._running.send(answer)
        except StopIteration as finished:
            log, done = finished.value, self._done
            self.log = self._running = self._done = None
            assert done is not None
            done(log)
            return
        except repair.OvertakenError as error:
            self.log = self._running = self._done = None
            self._host.give_up_log(error)
            return
        except repair.RepairPendingError:
            log = next(iter(self._repairs._pending.waiting.values()), None)
            if log is None:
                self.log = self._running = self._done = None
                self._host.open_later()
                return
            done = self._done
            assert done is not None
            self.log = log
            self._running = None
            self._host.later(RETRY_NS, lambda: self.start(log, done))
            return
        self._numbers += 1
        number = self._numbers
        self._host.send(call.to, CHANNEL_MISSING, msgpack.packb([number, call.payload]))
        self._host.later(TIMEOUT_NS, lambda: self._give_up(number))

    def _give_up(self, number: int) -> None:
        if number == self._numbers and self._running is not None:
            self._numbers += 1
            self._resume(None)

    def _on_answer(self, _sender: NodeId, payload: memoryview) -> None:
        number, answer = msgpack.unpackb(payload)
        if number == self._numbers and self._running is not None:
            self._numbers += 1
            self._resume(answer)

    def _on_request(self, sender: NodeId, payload: memoryview) -> None:
        number, packed = msgpack.unpackb(payload)
        try:
            answer = self._repairs.answer(sender, packed)
        except RemoteCallError:
            answer = b""
        self._host.send(sender, CHANNEL_FRAMES, msgpack.packb([number, answer]))


@contextmanager
def file_work_at_once() -> Generator[None, None, None]:
    """Let the coroutines of the repair do their file work without a thread."""

    async def immediately(function: Callable[[], Any]) -> Any:
        return function()

    with mock.patch.object(repair_attempt, "run_blocking", immediately):
        yield
