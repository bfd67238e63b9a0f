"""Publishes every row with an acknowledgement, a window at a time, without duplicates.

A row that is not acknowledged is sent again with the same Nats-Msg-Id, so the server keeps one of them. While the
stream has no leader a single row probes for the next one; the rest of the window follows when it is acknowledged.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence

import attrs
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

WINDOW = 2_000
PROBE_S = 0.1  # how long the stream may be silent before one row is sent again
RESEND_S = 1.5  # how old an unanswered row may get once others are answered
CHECK_S = 0.05
GIVE_UP_S = 60.0


@attrs.define
class Progress:
    """The number of acknowledgements, and the longest time between two of them."""

    acked: int = 0
    duplicates: int = 0
    refused: int = 0
    resent: int = 0
    last_seq: int = 0
    started_s: float = 0.0
    last_ack_s: float = 0.0
    longest_gap_s: float = 0.0
    gap_at: int = 0

    def note(self, now_s: float) -> None:
        """Count one acknowledgement."""
        gap_s = now_s - self.last_ack_s
        if self.acked and gap_s > self.longest_gap_s:
            self.longest_gap_s, self.gap_at = gap_s, self.acked
        self.last_ack_s = now_s
        self.acked += 1


class PublishFailedError(RuntimeError):
    """The stream refused a row permanently, or sent no acknowledgement for too long."""


class Publisher:
    """One connection, one reply subscription, at most WINDOW rows in flight.

    `on_ack` gets the progress, the number of the row and the stream sequence that the server gave it.
    """

    def __init__(self, rows: Sequence[tuple[str, bytes]], *, on_ack: Callable[[Progress, int, int], None]) -> None:
        self.rows = rows
        self.progress = Progress()
        self.on_ack = on_ack
        self._in_flight: dict[int, float] = {}  # row number -> when it was sent; oldest first
        self._space = asyncio.Event()
        self._space.set()
        self._failed: str | None = None

    async def run(self, servers: Sequence[str]) -> Progress:
        """Publish all rows; returns when the last one is acknowledged. Raises PublishFailedError."""
        client = await nats.connect(
            list(servers), max_reconnect_attempts=-1, reconnect_time_wait=0.1, connect_timeout=2, error_cb=ignore
        )
        try:
            inbox = client.new_inbox()
            await client.subscribe(f"{inbox}.*", cb=self._answered)
            self.progress.started_s = self.progress.last_ack_s = time.monotonic()
            watch = asyncio.create_task(self._watch(client, inbox))
            try:
                await self._publish_all(client, inbox)
            finally:
                watch.cancel()
        finally:
            await client.close()
        return self.progress

    async def _publish_all(self, client: Client, inbox: str) -> None:
        for number in range(len(self.rows)):
            await self._room(WINDOW)
            await self._send(client, inbox, number)
        await self._room(1)

    async def _room(self, below: int) -> None:
        while len(self._in_flight) >= below:
            if self._failed is not None:
                raise PublishFailedError(self._failed)
            self._space.clear()
            await self._space.wait()

    async def _send(self, client: Client, inbox: str, number: int) -> None:
        subject, row = self.rows[number]
        self._in_flight.pop(number, None)
        self._in_flight[number] = time.monotonic()
        try:
            await client.publish(subject, row, reply=f"{inbox}.{number}", headers={"Nats-Msg-Id": f"flight-{number}"})
        except NatsError:
            await asyncio.sleep(CHECK_S)  # reconnecting, and its buffer is full: the row stays in flight

    async def _answered(self, message: Msg) -> None:
        number = int(message.subject.rpartition(".")[2])
        answer = json.loads(message.data) if message.data else {}
        if number not in self._in_flight:
            return
        if "seq" not in answer:
            self._refused(message, answer)
            return
        del self._in_flight[number]
        self.progress.note(time.monotonic())
        self.progress.duplicates += bool(answer.get("duplicate"))
        self.progress.last_seq = max(self.progress.last_seq, answer["seq"])
        self._space.set()
        self.on_ack(self.progress, number, answer["seq"])

    def _refused(self, message: Msg, answer: dict[str, dict[str, object]]) -> None:
        """No responders and 503 mean "no leader now"; the row stays in flight. Anything else is final."""
        self.progress.refused += 1
        status = (message.headers or {}).get("Status", "")
        error = answer.get("error", {})
        if "503" not in (status, str(error.get("code"))):
            self._failed = f"{message.subject}: {error or status}"
            self._space.set()

    async def _watch(self, client: Client, inbox: str) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            if not self._in_flight:
                continue
            now_s = time.monotonic()
            oldest = next(iter(self._in_flight))
            if now_s - self.progress.last_ack_s > GIVE_UP_S:
                self._failed = f"no acknowledgement for {GIVE_UP_S:.0f} s"
                self._space.set()
                return
            if now_s - self.progress.last_ack_s > PROBE_S:
                await self._resend(client, inbox, [oldest])
            else:
                old = [number for number, sent_s in self._in_flight.items() if now_s - sent_s > RESEND_S]
                await self._resend(client, inbox, old)

    async def _resend(self, client: Client, inbox: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._in_flight:
                self.progress.resent += 1
                await self._send(client, inbox, number)


async def ignore(_: Exception) -> None:
    """Ignore connection errors: the demo kills a node."""
