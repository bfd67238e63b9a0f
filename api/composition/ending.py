"""How a server stops: its signals, the transfer of leadership, and the end of client connections in lame duck mode.

As in nats-server SIGTERM and SIGINT stop the server, SIGUSR2 starts lame duck mode, SIGUSR1 reopens the log file.
SIGHUP reloads the configuration (api/reload).
"""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio

from jetraft.api.listeners.listener import ClientListener
from jetraft.api.logs.logger import Logger
from jetraft.api.options.options import Options
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import Sessions
from jetraft.api.system.events import SystemEvents
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.events import LAME_DUCK, SERVER_STOPPING

STEP_DOWN_S = 5.0  # the longest wait for other nodes to lead the groups; a thousand groups take about 2 s
STEP_DOWN_POLL_S = 0.01
LAME_DUCK_STEPS = 20


@attrs.frozen(kw_only=True, eq=False)
class Ending:
    """Waits for signals and acts on them."""

    options: Options
    say: Logger
    plane: Plane
    reactor: Reactor
    sessions: Sessions
    listeners: Sequence[ClientListener]
    reload: Callable[[], Awaitable[None]]
    jetstream: Any  # JetStreamNode, or None where it is not enabled
    events: SystemEvents | None = None  # None where there is no system account

    async def run(self, signals: AsyncIterator[int]) -> None:
        """Return when a signal has stopped the server. SIGTERM or SIGINT ends lame duck mode early."""
        async with trio.open_nursery() as nursery:
            ducks = 0
            async for number in signals:
                if number in (signal.SIGTERM, signal.SIGINT):
                    SERVER_STOPPING.log(signal=signal.Signals(number).name)
                    nursery.cancel_scope.cancel()
                    break
                if number == signal.SIGUSR2 and not ducks:
                    ducks += 1
                    nursery.start_soon(self._lame_duck, nursery.cancel_scope)
                elif number == signal.SIGUSR1:
                    self._reopen_log()
                elif number == signal.SIGHUP:
                    nursery.start_soon(self.reload)
        await self._stop()

    def _reopen_log(self) -> None:
        try:
            self.say.reopen()
        except OSError as error:
            self.say.error(f"Cannot re-open the log file, writing to the old one: {error}")
        else:
            self.say.info("File log re-opened")

    async def _stop(self) -> None:
        """Transfer leadership to other nodes. The clients are closed when all else has ended (Server.run)."""
        self.sessions.is_ending = True
        if self.events is not None:
            self.events.tell_shutdown()
        if self.jetstream is not None:
            await self._step_down()
            await self.jetstream.retire()
        self.reactor.end_turn()

    async def _step_down(self) -> None:
        """Transfer leadership until no transfer is left to do, for STEP_DOWN_S at most."""
        with trio.move_on_after(STEP_DOWN_S):
            while self.jetstream.step_down():  # noqa: ASYNC110  each call starts the next transfers
                await trio.sleep(STEP_DOWN_POLL_S)

    async def _lame_duck(self, done: trio.CancelScope) -> None:
        """Accept no new client, tell clients to reconnect elsewhere, and close them a few at a time."""
        options = self.options
        LAME_DUCK.log()
        for listener in self.listeners:
            listener.close()
        self.sessions.lame_duck = True
        if self.events is not None:
            self.events.tell_lame_duck()
        if self.jetstream is not None:
            await self._step_down()
        for cid, session in self.sessions.by_cid.items():
            if session.options.protocol:
                self.plane.write(cid, self.sessions.info(session))
        self.reactor.end_turn()
        await trio.sleep(options.lame_duck_grace_period_ns / NS_PER_S)
        cids = self.plane.connection_ids()
        rest_s = max(0, options.lame_duck_duration_ns - options.lame_duck_grace_period_ns) / NS_PER_S
        for start in range(LAME_DUCK_STEPS):
            for cid in cids[start::LAME_DUCK_STEPS]:
                self.plane.close(cid, Reason.SERVER_SHUTDOWN)
            self.reactor.end_turn()
            if not self.plane.connection_ids():
                break
            await trio.sleep(rest_s / LAME_DUCK_STEPS)
        done.cancel()
