"""A client on the host that knows one seed: publishes numbered messages until told to stop, and never gives one up."""

import asyncio
import threading
import time
from typing import Final

import attrs
import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

SUBJECT: Final = "check.orders"
STREAM: Final = "CHECK"
WORKERS: Final = 16  # each waits for its acknowledgement
PAUSE_S: Final = 0.005
ANSWER_S: Final = 0.5  # a client that was cut off learns nothing of what it has sent; messages have ids
RETRY_S: Final = 0.02


@attrs.define(eq=False)
class Load:
    """`start`, `begin_step` and `end_step` around each step, `stop`. The ids are those of the messages."""

    seed: str
    acknowledged: dict[str, int] = attrs.Factory(dict)  # id to the sequence in the stream
    duplicates: int = 0  # acknowledgements of what was stored by an attempt that got none
    retried: int = 0
    longest_gap_s: float = 0.0
    reconnects: int = 0
    discovered: int = 0
    error: BaseException | None = None
    _last_ack_s: float = 0.0
    _stopping: threading.Event = attrs.Factory(threading.Event)
    _connected: threading.Event = attrs.Factory(threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Connect, create the stream and publish, in a thread."""
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        self._connected.wait(30.0)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  (told by `stop`, in the thread that waits)
            self.error = error
            self._connected.set()

    async def _run(self) -> None:
        client = await nats.connect(
            self.seed, max_reconnect_attempts=-1, reconnect_time_wait=0.1, connect_timeout=2, error_cb=_ignore
        )
        await client.jetstream().add_stream(name=STREAM, subjects=[SUBJECT], num_replicas=3, allow_direct=True)
        self._last_ack_s = time.monotonic()
        self._connected.set()
        async with asyncio.TaskGroup() as group:
            for worker in range(WORKERS):
                group.create_task(self._publish(client, worker))
        self.reconnects, self.discovered = client.stats["reconnects"], len(client.servers)
        await client.close()

    async def _publish(self, client: Client, worker: int) -> None:
        jetstream, count = client.jetstream(), 0
        while not self._stopping.is_set():
            count += 1
            name = f"{worker}-{count}"
            while True:
                try:
                    ack = await jetstream.publish(
                        SUBJECT, name.encode(), timeout=ANSWER_S, headers={"Nats-Msg-Id": name}
                    )
                except (TimeoutError, NatsError):
                    self.retried += 1
                    await asyncio.sleep(RETRY_S)
                    continue
                break
            self._note(name, ack.seq, is_duplicate=bool(ack.duplicate))
            await asyncio.sleep(PAUSE_S)

    def _note(self, name: str, seq: int, *, is_duplicate: bool) -> None:
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_ack_s)
        self._last_ack_s = now_s
        self.duplicates += is_duplicate
        self.acknowledged[name] = seq

    def begin_step(self) -> None:
        """Gaps are measured from now on."""
        self.longest_gap_s = 0.0

    def end_step(self) -> float:
        """The longest time without an acknowledgement since then, the present one included, in seconds."""
        return max(self.longest_gap_s, time.monotonic() - self._last_ack_s)

    def wait_for_more(self, count: int) -> None:
        """Return when so many more are acknowledged. Raises what has ended the load, TimeoutError."""
        target, deadline = len(self.acknowledged) + count, time.monotonic() + 120.0
        while len(self.acknowledged) < target:
            if self.error is not None:
                raise self.error
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {count} acknowledgements in 120 s")
            time.sleep(0.05)

    def stop(self) -> None:
        """Return when all that was published is acknowledged. Raises what has ended the load."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(120.0)
        if self.error is not None:
            raise self.error


async def _ignore(_error: Exception) -> None:
    """Disconnects are what is tested."""
