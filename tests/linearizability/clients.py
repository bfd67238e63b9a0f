"""Clients that write down what they asked, when, and what they were told.

At each node there are clients of four kinds, each with a connection to that node only:

- *registers*: linearizable reads (STREAM.MSG.GET) and swaps of keys (publishes that expect the last sequence);
- *list*: publishes to one subject, and linearizable reads of its end;
- *values*: one writer of increasing values for keys of its own;
- *gets*: direct gets of all those keys, some of which ask for a linearizable answer.

What was not answered within a second is lost: it may have taken place, now or later.
"""

import asyncio
import base64
import contextlib
import json
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any, Final

import attrs
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from tests.linearizability.checker import ABSENT, NEVER, Action, Operation
from tests.linearizability.lists import Append, Look

ANSWER_S: Final = 1.0
PAUSE_S: Final = 0.02  # between two operations of a client
REGISTERS: Final = 3  # at a time; each is used for an epoch, so that its history stays short
EPOCH_S: Final = 3.0
VALUES: Final = 8  # keys of each writer of values
BUCKET: Final = "KV_REGISTERS"
LIST: Final = "LIST"
WRONG_LAST_SEQUENCE: Final = 10071
NO_MESSAGE: Final = 10037
LOST: Final = (NatsError, TimeoutError, OSError)

# What a direct get was asked for, and what came of it.
LINEARIZABLE_GET, LEADER, FOLLOWER = "direct get, linearizable", "direct get at the leader", "direct get at a follower"
MESSAGE_GET: Final = "STREAM.MSG.GET"
KINDS: Final = (MESSAGE_GET, LINEARIZABLE_GET, LEADER, FOLLOWER)


@attrs.define
class Reads:
    """What reads of one kind came to."""

    answered: int = 0
    unavailable: int = 0  # 4xx and 5xx that say so, no responders, no answer
    not_found: int = 0  # 404 for keys that had been acknowledged before the read began
    stale: int = 0  # values older than what had been acknowledged before
    late_ns: list[int] = attrs.field(factory=list)  # of stale ones: how long before the read the newer one was acked
    examples: list[str] = attrs.field(factory=list)


class Recorder:
    """What all clients have seen."""

    def __init__(self) -> None:
        self.registers: defaultdict[str, list[Operation]] = defaultdict(list)
        self.appends: list[Append] = []
        self.looks: list[Look] = []
        self.reads = {kind: Reads() for kind in KINDS}
        self.acked: dict[str, tuple[list[int], list[int]]] = {}  # of values: when, and which
        self.lost: Counter[str] = Counter()
        self.revisions: dict[int, str] = {}  # of registers: what each sequence was told to hold
        self.contradictions: list[str] = []

    def revision(self, seq: int, value: str) -> None:
        """A sequence has one value for ever."""
        if (known := self.revisions.setdefault(seq, value)) != value:
            self.contradictions.append(f"sequence {seq} is {known} and {value}")

    def put(self, key: str, value: int, acked_ns: int) -> None:
        """A value was acknowledged."""
        times, values = self.acked.setdefault(key, ([], []))
        times.append(acked_ns)
        values.append(value)

    def got(self, kind: str, key: str, value: int | None, begin_ns: int, who: str) -> None:
        """A read of a value was answered; None: with 404."""
        reads = self.reads[kind]
        reads.answered += 1
        times, values = self.acked.get(key, ([], []))
        before = bisect_right(times, begin_ns)
        if not before or (value is not None and value >= values[before - 1]):
            return
        newer = 0 if value is None else bisect_right(values, value)
        reads.not_found += value is None
        reads.stale += value is not None
        reads.late_ns.append(begin_ns - times[newer])
        if len(reads.examples) < 3:
            reads.examples.append(f"{who}: {key} was {value}, {values[before - 1]} was acknowledged before")


class Clients:
    """All clients of the nodes, until `stop` is set. `leads` says which node led the bucket when it was asked last."""

    def __init__(self, addresses: list[tuple[str, int]], random: Random, leads: Callable[[], int | None]) -> None:
        self.recorder = Recorder()
        self.stop = asyncio.Event()
        self._addresses = addresses
        self._random = random
        self._leads = leads
        self._began_ns = time.monotonic_ns()
        self._count = 0

    async def run(self) -> None:
        """Serve until stopped."""

        async def lost(_error: Exception) -> None:
            """Faults end connections."""

        async with contextlib.AsyncExitStack() as stack:
            clients = []
            for host, port in self._addresses:
                client = await nats.connect(
                    f"nats://{host}:{port}",
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.1,
                    connect_timeout=10,
                    error_cb=lost,
                    pending_size=0,
                )
                stack.push_async_callback(_close, client)
                clients.append(client)
            roles = (self._use_registers, self._use_list, self._put_values, self._get_values)
            await asyncio.gather(*(role(place, client) for role in roles for place, client in enumerate(clients)))

    # --- registers
    async def _use_registers(self, place: int, client: Client) -> None:
        known: dict[str, tuple[int, str]] = {}  # what this client has read last: sequence and value
        while not self.stop.is_set():
            epoch = int((time.monotonic_ns() - self._began_ns) / 1e9 / EPOCH_S)
            key = f"r{epoch}-{self._random.randrange(REGISTERS)}"
            if key in known and self._random.random() < 0.5:
                await self._swap(client, key, known.pop(key))
            else:
                await self._read(place, client, key, known)
            await asyncio.sleep(PAUSE_S)

    async def _read(self, place: int, client: Client, key: str, known: dict[str, tuple[int, str]]) -> None:
        begin_ns = time.monotonic_ns()
        answer = await self._ask(client, f"$JS.API.STREAM.MSG.GET.{BUCKET}", {"last_by_subj": f"{BUCKET}.{key}"})
        error = (answer or {}).get("error", {}).get("err_code")
        reads = self.recorder.reads[MESSAGE_GET]
        if answer is None or error not in (None, NO_MESSAGE):
            reads.unavailable += 1
            return
        reads.answered += 1
        message = answer.get("message", {})
        seq, value = message.get("seq", 0), base64.b64decode(message.get("data", "")).decode()
        if seq:
            self.recorder.revision(seq, value)
        known[key] = (seq, value)
        self._note(key, Action.READ, value, begin_ns, time.monotonic_ns())
        del place

    async def _swap(self, client: Client, key: str, known: tuple[int, str]) -> None:
        seq, expected = known
        value, begin_ns = self._unique(), time.monotonic_ns()
        headers = {"Nats-Expected-Last-Subject-Sequence": str(seq)}
        answer = await self._publish(client, f"{BUCKET}.{key}", value, headers)
        end_ns = time.monotonic_ns()
        if answer is not None and "seq" in answer and "error" not in answer:
            self.recorder.revision(answer["seq"], value)
            self._note(key, Action.SWAP, value, begin_ns, end_ns, expected)
        elif answer is not None and answer.get("error", {}).get("err_code") == WRONG_LAST_SEQUENCE:
            self._note(key, Action.REFUSED, value, begin_ns, end_ns, expected)
        else:
            self.recorder.lost["swaps"] += 1
            self._note(key, Action.SWAP, value, begin_ns, NEVER, expected)

    def _note(  # noqa: PLR0913, PLR0917  (what an operation is)
        self, key: str, action: Action, value: str, begin_ns: int, end_ns: int, expected: str = ABSENT
    ) -> None:
        operation = Operation(action=action, value=value, expected=expected, begin_ns=begin_ns, end_ns=end_ns)
        self.recorder.registers[key].append(operation)

    # --- the list
    async def _use_list(self, place: int, client: Client) -> None:
        while not self.stop.is_set():
            begin_ns = time.monotonic_ns()
            if self._random.random() < 0.7:
                value = self._unique()
                answer = await self._publish(client, f"{LIST}.{place}", value, {})
                seq = (answer or {}).get("seq", 0) if "error" not in (answer or {}) else 0
                self.recorder.lost["appends"] += not seq
                self.recorder.appends.append(Append(value, begin_ns, time.monotonic_ns() if seq else NEVER, seq))
            else:
                answer = await self._ask(client, f"$JS.API.STREAM.MSG.GET.{LIST}", {"last_by_subj": f"{LIST}.>"})
                error = (answer or {}).get("error", {}).get("err_code")
                reads = self.recorder.reads[MESSAGE_GET]
                if answer is None or error not in (None, NO_MESSAGE):
                    reads.unavailable += 1
                else:
                    reads.answered += 1
                    seq = answer.get("message", {}).get("seq", 0)
                    self.recorder.looks.append(Look(begin_ns, time.monotonic_ns(), seq))
            await asyncio.sleep(PAUSE_S)

    # --- values
    async def _put_values(self, place: int, client: Client) -> None:
        value = 0
        while not self.stop.is_set():
            value += 1
            key = f"v{place}-{self._random.randrange(VALUES)}"
            answer = await self._publish(client, f"{BUCKET}.{key}", str(value), {})
            if answer is not None and "seq" in answer and "error" not in answer:
                self.recorder.put(key, value, time.monotonic_ns())
            else:
                self.recorder.lost["puts"] += 1
                await asyncio.sleep(ANSWER_S)  # a value that comes late would hide those that were acknowledged after
            await asyncio.sleep(PAUSE_S)

    async def _get_values(self, place: int, client: Client) -> None:
        while not self.stop.is_set():
            key = f"v{self._random.randrange(len(self._addresses))}-{self._random.randrange(VALUES)}"
            headers, kind = None, LEADER if self._leads() == place else FOLLOWER
            if self._random.random() < 0.25:
                headers, kind = {"Jetraft-Consistency": "linearizable"}, LINEARIZABLE_GET
            begin_ns = time.monotonic_ns()
            found = await self._request(client, f"$JS.API.DIRECT.GET.{BUCKET}.{BUCKET}.{key}", b"", headers)
            status = "" if found is None or not found.headers else found.headers.get("Status", "")
            if found is None or (status and status != "404"):
                self.recorder.reads[kind].unavailable += 1
            else:
                value = None if status else int(found.data)
                self.recorder.got(kind, key, value, begin_ns, f"node {place + 1}")
            await asyncio.sleep(PAUSE_S / 2)

    # --- asking
    def _unique(self) -> str:
        self._count += 1
        return f"x{self._count}"

    async def _request(
        self, client: Client, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Msg | None:
        if not client.is_connected:
            await asyncio.sleep(PAUSE_S)
        try:
            return await client.request(subject, payload, timeout=ANSWER_S, headers=headers)
        except LOST:
            return None

    async def _ask(self, client: Client, subject: str, body: object) -> dict[str, Any] | None:
        found = await self._request(client, subject, json.dumps(body).encode())
        return None if found is None or not found.data else dict(json.loads(found.data))

    async def _publish(
        self, client: Client, subject: str, value: str, headers: dict[str, str]
    ) -> dict[str, Any] | None:
        found = await self._request(client, subject, value.encode(), headers or None)
        return None if found is None or not found.data else dict(json.loads(found.data))


async def _close(client: Client) -> None:
    with contextlib.suppress(*LOST):
        await client.close()
