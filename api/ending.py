"""How a server ends: the signals it understands, handing over what it leads, and taking leave of its clients.

As with nats-server: SIGTERM and SIGINT stop, SIGUSR2 is lame duck mode, SIGUSR1 opens the log file anew. SIGHUP, which
reloads the configuration there, says that it does not.
"""

import signal
from collections.abc import AsyncIterator
from typing import Any

import attrs
import trio

from jetraft.api.config.options import Options
from jetraft.api.listener import ClientListener
from jetraft.api.logger import Logger
from jetraft.api.reactor import Reactor
from jetraft.api.reasons import Reason
from jetraft.api.routing._plane import Plane
from jetraft.api.session import Sessions
from jetraft.store.model.clock import NS_PER_S

STEP_DOWN_S = 5.0  # how long a stopping leader waits for its groups to have another one; a thousand take about two
STEP_DOWN_POLL_S = 0.01
LAME_DUCK_STEPS = 20


@attrs.frozen(kw_only=True, eq=False)
class Ending:
    """Waits for signals and carries them out."""

    options: Options
    say: Logger
    plane: Plane
    reactor: Reactor
    sessions: Sessions
    listener: ClientListener
    jetstream: Any  # JetStreamNode, or None where it is not enabled

    async def run(self, signals: AsyncIterator[int]) -> None:
        """Return when a signal has ended the server. One that comes in lame duck mode cuts that short."""
        async with trio.open_nursery() as nursery:
            ducks = 0
            async for number in signals:
                if number in (signal.SIGTERM, signal.SIGINT):
                    self.say.info(f"Initiating Shutdown... ({signal.Signals(number).name})")
                    nursery.cancel_scope.cancel()
                    break
                if number == signal.SIGUSR2 and not ducks:
                    ducks += 1
                    nursery.start_soon(self._lame_duck, nursery.cancel_scope)
                elif number == signal.SIGUSR1:
                    self._reopen_log()
                elif number == signal.SIGHUP:
                    self.say.error("Configuration reload is not served yet; restart the server to apply changes")
        await self._stop()

    def _reopen_log(self) -> None:
        try:
            self.say.reopen()
        except OSError as error:
            self.say.error(f"Cannot re-open the log file, writing to the old one: {error}")
        else:
            self.say.info("File log re-opened")

    async def _stop(self) -> None:
        """Let other nodes take over what this one leads, say goodbye to clients."""
        if self.jetstream is not None:
            await self._step_down()
            self.jetstream.retire()
        for cid in self.plane.connection_ids():
            self.plane.close(cid, Reason.SERVER_SHUTDOWN)
        self.reactor.end_turn()

    async def _step_down(self) -> None:
        """Return when other nodes lead what they can lead, or after STEP_DOWN_S."""
        with trio.move_on_after(STEP_DOWN_S):
            while self.jetstream.step_down():  # noqa: ASYNC110  no event says that the last transfer is done
                await trio.sleep(STEP_DOWN_POLL_S)

    async def _lame_duck(self, done: trio.CancelScope) -> None:
        """Tell clients to go elsewhere, give them time, close them bit by bit."""
        options = self.options
        self.say.info("Entering lame duck mode, stop accepting new clients")
        self.listener.close()
        self.sessions.lame_duck = True
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
