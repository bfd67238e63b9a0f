"""Writers that publish unique messages and never give one up: sent again, under the same id, until acknowledged.

Each writer is one connection at a time with a bounded window and has a node where it is at home. It goes to the next
one when its connection breaks or when nothing is acknowledged for long, and home again after a while; what is in flight
goes with it. So every node that can be reached has a writer, and a silence of all writers is a silence of the cluster.
All share one event loop in a thread of their own, so that faults are made while they write.
"""

import asyncio
import contextlib
import json
import secrets
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.faults.journal import Journal
from tests.harness.tasks import cancel_until_done

TICK_S = 0.01
CONNECT_TIMEOUT_S = 1.0
RECONNECT_S = 0.05
PROBE_S = 0.1  # how long a writer is without an acknowledgement before it sends its oldest message again
RESEND_S = 1.5  # how old an unanswered message gets while others are acknowledged
SILENCE_S = 3.0  # how long a writer stays on a node that acknowledges nothing
AWAY_S = 2.0  # how long it stays on another node than its own
WINDOWS = (1, 8, 32, 32, 16)  # the first writer waits for each acknowledgement
_NS = 1_000_000_000
_CONNECT = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1, "lang": "raw", "version": "1"}


class Writer:
    """`<name>-<counter>` on `<stream>.<name>`, at `rate` messages a second as long as the window allows."""

    def __init__(  # noqa: PLR0913  (what distinguishes writers, by name)
        self,
        name: str,
        *,
        stream: str,
        window: int,
        rate: float,
        addresses: Sequence[tuple[str, int]],
        journal: Journal,
    ) -> None:
        self.name = name
        self.in_flight: dict[bytes, int] = {}  # payload -> when it was sent last
        self.sending = True
        self._subject = f"{stream}.{name}"
        self._window = window
        self._interval_ns = int(_NS / rate)
        self._addresses = addresses
        self._attempt = 0  # counts from the own node
        self._journal = journal
        self._count = 0
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._due_ns = 0
        self._progress_ns = 0
        self._output: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Write until stopped and everything is acknowledged."""
        self._due_ns = time.monotonic_ns()
        while self.sending or self.in_flight:
            at_home = self._attempt % len(self._addresses) == 0
            with contextlib.suppress(OSError, TimeoutError, EOFError, ValueError):
                self._attempt += 1
                await self._session(*self._addresses[(self._attempt - 1) % len(self._addresses)], at_home=at_home)
            await asyncio.sleep(RECONNECT_S)

    async def _session(self, host: str, port: int, *, at_home: bool) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            source, output = await asyncio.open_connection(host, port)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await source.readline()
                output.write(
                    b"CONNECT %s\r\nSUB %s.* 1\r\nPING\r\n" % (json.dumps(_CONNECT).encode(), self._inbox.encode())
                )
                while (await source.readline()).strip() != b"PONG":
                    if source.at_eof():
                        raise ConnectionResetError(host)
            self._output = output
            reading = asyncio.create_task(self._read(source, output))
            try:
                await self._write(reading, at_home=at_home)
            finally:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, EOFError, ValueError):
                    await reading
        finally:
            output.transport.abort()

    # --- sending --------------------------------------------------------------------------------------------------
    async def _write(self, reading: asyncio.Task[None], *, at_home: bool) -> None:
        self._progress_ns = began_ns = time.monotonic_ns()
        for payload in list(self.in_flight):
            self._publish(payload)
        while (self.sending or self.in_flight) and not (reading.done() or self._closing):
            now_ns = time.monotonic_ns()
            self._due_ns = max(self._due_ns, now_ns - _NS // 10)  # what a blocked window missed is not made up for
            while self.sending and self._due_ns <= now_ns and len(self.in_flight) < self._window:
                self._count += 1
                self._due_ns += self._interval_ns
                self._publish(f"{self.name}-{self._count}".encode())
            if not self._repeat(now_ns):
                return
            if not at_home and now_ns - began_ns > AWAY_S * _NS:
                self._attempt = 0
                return
            await asyncio.sleep(TICK_S)

    def _repeat(self, now_ns: int) -> bool:
        """Send again what is overdue; False when this node has been silent for too long."""
        if not self.in_flight:
            self._progress_ns = now_ns
            return True
        oldest = min(self.in_flight, key=self.in_flight.__getitem__)
        if now_ns - self._progress_ns > SILENCE_S * _NS:
            return False
        if now_ns - max(self._progress_ns, self.in_flight[oldest]) > PROBE_S * _NS:
            self._publish(oldest)
        for payload in [p for p, sent_ns in self.in_flight.items() if now_ns - sent_ns > RESEND_S * _NS]:
            self._publish(payload)
        return True

    def _publish(self, payload: bytes) -> None:
        assert self._output is not None
        now_ns = time.monotonic_ns()
        self.in_flight[payload] = now_ns
        self._journal.sent(payload, now_ns)
        hdr = b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % payload
        reply = f"{self._inbox}.{payload.decode()}"
        sizes = b"%d %d" % (len(hdr), len(hdr) + len(payload))
        self._output.write(b"HPUB %s %s %s\r\n%s%s\r\n" % (self._subject.encode(), reply.encode(), sizes, hdr, payload))

    @property
    def _closing(self) -> bool:
        return self._output is None or self._output.is_closing()

    # --- receiving ------------------------------------------------------------------------------------------------
    async def _read(self, source: asyncio.StreamReader, output: asyncio.StreamWriter) -> None:
        while True:
            line = await source.readuntil(b"\r\n")
            verb, *words = line.split()
            if verb == b"PING":
                output.write(b"PONG\r\n")
            elif verb in (b"MSG", b"HMSG"):
                body = (await source.readexactly(int(words[-1]) + 2))[:-2]
                hdr_len = int(words[-2]) if verb == b"HMSG" else 0
                self._answered(words[0].rpartition(b".")[2], body[:hdr_len], body[hdr_len:])

    def _answered(self, payload: bytes, hdr: bytes, body: bytes) -> None:
        now_ns = time.monotonic_ns()
        answer: dict[str, Any] = json.loads(body) if body else {}
        if "error" in answer or "seq" not in answer:
            self._journal.refused(payload, str(answer.get("error") or hdr), now_ns)
            return
        self._journal.acked(payload, answer["seq"], now_ns, duplicate=bool(answer.get("duplicate")))
        self.in_flight.pop(payload, None)
        self._progress_ns = now_ns


class Load:
    """`with Load(...) as load:` writes in the background; `finish` stops and waits for the last acknowledgement."""

    def __init__(
        self,
        journal: Journal,
        *,
        stream: str,
        addresses: Sequence[tuple[str, int]],
        rate: float,
        windows: Sequence[int] = WINDOWS,
    ) -> None:
        count = len(windows)
        self.writers = [
            Writer(
                f"w{number}",
                stream=stream,
                window=window,
                rate=rate / count,
                addresses=[*addresses[number % len(addresses) :], *addresses[: number % len(addresses)]],
                journal=journal,
            )
            for number, window in enumerate(windows)
        ]
        self._thread = threading.Thread(target=self._work, name="load", daemon=True)
        self._abandoned = threading.Event()

    def _work(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        tasks = [asyncio.create_task(writer.run()) for writer in self.writers]
        watching = asyncio.create_task(self._cancel_when_abandoned(tasks))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        self._abandoned.set()
        await watching
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _cancel_when_abandoned(self, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.to_thread(self._abandoned.wait)
        await cancel_until_done(tasks)

    def finish(self, timeout_s: float) -> int:
        """Send nothing new, wait until all is acknowledged; returns how many messages are still unknown."""
        for writer in self.writers:
            writer.sending = False
        self._thread.join(timeout_s)
        return sum(len(writer.in_flight) for writer in self.writers)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._abandoned.set()
        self._thread.join()
