"""`jetraft bench`: how many messages in a second, and how long each takes, in the manner of `nats bench`.

A case that waits for answers keeps `--batch` of them on their way for each client; its latency is the time to one.
"""

import asyncio
import json
import os
import secrets
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any, Final

import attrs
import typer
from nats.aio.msg import Msg

from jetraft.api.cli.client.connection import CommandConnection, subject_text, together, token
from jetraft.api.cli.client.copies.acknowledged import Acknowledged, acknowledgement
from jetraft.api.cli.client.errors import AnsweredError, CommandError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.kv import PREFIX
from jetraft.api.cli.client.measuring import Measured, Meter, measured, print_measured, several, shares
from jetraft.api.cli.client.messages import flushed
from jetraft.api.cli.client.units import size_bytes

GROUP: Final = CommandGroup.of("bench", "Measure rates and latencies of a server or a cluster.")
main: Final = GROUP.main
MESSAGES: Final = 100_000
CLIENTS_MAX: Final = 1_000  # connections of this process
BATCH_MAX: Final = 100_000
KEYS: Final = 1_000
PENDING_MESSAGES_MAX: Final = 1 << 20  # of a subscription, before nats-py drops messages
PENDING_BYTES_MAX: Final = 1 << 30
STAMP: Final = struct.Struct("<8sq")  # in front of a payload: when it was published, in nanoseconds of the wall clock
MAGIC: Final = b"jr-bench"
NO_STREAM: Final = 10059
PULLS: Final = 2  # of a client, so that one is answered while another is on its way
INACTIVE_NS: Final = 60_000_000_000  # an interrupted consumer goes after that
FAILED: Final = ("404", "408", "409", "503")
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="subject of the messages")]
Msgs = Annotated[int, typer.Option("--msgs", "-n", min=1, help="messages of all clients together")]
Size = Annotated[str, typer.Option("--size", metavar="SIZE", help="bytes of a payload")]
Clients = Annotated[int, typer.Option("--clients", "-c", min=1, max=CLIENTS_MAX, help="connections at once")]
Batch = Annotated[
    int, typer.Option("--batch", "-b", min=1, max=BATCH_MAX, help="on their way at once, for each client")
]
Keep = Annotated[bool, typer.Option("--keep", help="keep what was created for this")]
Replicas = Annotated[int, typer.Option("--replicas", min=1, max=5, help="servers that hold what is created")]
Storage = Annotated[str, typer.Option("--storage", help="of what is created: file or memory")]


def payload_of(size: str) -> bytes:
    """A payload that compresses badly. Raises UsageError."""
    return secrets.token_bytes(max(size_bytes(size), 0))


@GROUP.command("pub", "bench pub a.b --msgs 1000000 --size 16", "bench pub a.b --clients 4 --json")
async def pub(
    at: CommandConnection,
    subject: Subject,
    msgs: Msgs = MESSAGES,
    size: Size = "128",
    clients: Clients = 1,
    batch: Batch = 500,
) -> None:
    """Publish without acknowledgement; the latency is that of a round trip behind every --batch messages."""
    subject_text(subject)
    payload = payload_of(size)

    async def work(client: CommandConnection, count: int, meter: Meter) -> None:
        for start in range(0, count, batch):
            stamped, rest = payload, min(batch, count - start)
            for _ in range(rest):
                if len(payload) >= STAMP.size:
                    stamped = STAMP.pack(MAGIC, time.time_ns()) + payload[STAMP.size :]
                await client.nc.publish(subject, stamped)
            started_ns = time.perf_counter_ns()
            await client.unless_refused(flushed(client))
            meter.one(started_ns)
            meter.messages += rest - 1

    async with several(at, clients) as found:
        works = [partial(work, client, count) for client, count in zip(found, shares(msgs, clients), strict=True)]
        print_measured(at.out, [await measured(at, "publish", works, total=msgs, size=len(payload))])


@GROUP.command("sub", "bench sub a.b --msgs 1000000", "bench sub a.b --clients 4 --queue workers --json")
async def sub(
    at: CommandConnection,
    subject: Subject,
    msgs: Msgs = MESSAGES,
    clients: Clients = 1,
    queue: Annotated[str, typer.Option("--queue", help="share the messages among the clients")] = "",
) -> None:
    """Receive messages; of `bench pub` with their latency, if the clocks of both machines agree.

    Each client receives all --msgs, or with --queue all of them together. The time begins with the first message.
    """
    subject_text(subject)
    total = msgs if queue else msgs * clients
    sizes = [0]

    async def work(client: CommandConnection, everyone: list[int], meter: Meter) -> None:
        done = asyncio.Event()

        async def take(message: Msg) -> None:
            meter.messages += 1
            sizes[0] = len(message.data)
            if message.data[: len(MAGIC)] == MAGIC and len(message.data) >= STAMP.size:
                meter.latencies_ns.append(max(0, time.time_ns() - STAMP.unpack_from(message.data)[1]))
            everyone[0] += 1
            if everyone[0] >= total or (not queue and meter.messages >= msgs):
                done.set()

        await client.nc.subscribe(
            subject, queue, cb=take, pending_msgs_limit=PENDING_MESSAGES_MAX, pending_bytes_limit=PENDING_BYTES_MAX
        )
        await client.unless_refused(flushed(client))
        while not done.is_set() and everyone[0] < total:
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 0.05)

    async with several(at, clients) as found:
        everyone = [0]
        works = [partial(work, client, everyone) for client in found]
        result = await measured(at, "receive", works, total=total, size=0, waits_for_first=True)
        print_measured(at.out, [attrs.evolve(result, size=sizes[0])])


async def answered(
    acks: Acknowledged,
    left: list[int],
    meter: Meter,
    one: Callable[[int], tuple[str, bytes]],
    check: Callable[[Msg], Any],
) -> None:
    """Ask as long as something is left; `one` gives subject and payload of a number."""
    while left[0] > 0:
        left[0] -= 1
        subject, payload = one(left[0])
        started_ns = time.perf_counter_ns()
        check(await (await acks.publish(subject, payload)))
        meter.one(started_ns)


def asking(
    client: CommandConnection,
    count: int,
    batch: int,
    one: Callable[[int], tuple[str, bytes]],
    check: Callable[[Msg], Any],
) -> Callable[[Meter], Awaitable[None]]:
    """The work of a client that keeps a number of questions on their way."""

    async def work(meter: Meter) -> None:
        left = [count]
        async with Acknowledged(client.nc) as acks:
            await together(*(answered(acks, left, meter, one, check) for _ in range(min(batch, count))))

    async def until_done(meter: Meter) -> None:
        await client.unless_refused(work(meter))

    return until_done


@GROUP.command(
    "js",
    "bench js bench.a --msgs 100000 --batch 500",
    "bench js bench.a --clients 4 --replicas 3 --json",
    "bench js orders.test --stream ORDERS --no-fetch",
)
async def js(
    at: CommandConnection,
    subject: Subject,
    stream: Annotated[str, typer.Option("--stream", help="created if it is not there, and deleted then")] = "BENCH",
    msgs: Msgs = MESSAGES,
    size: Size = "128",
    clients: Clients = 1,
    batch: Batch = 256,
    replicas: Replicas = 1,
    storage: Storage = "file",
    fetch: Annotated[bool, typer.Option("--fetch/--no-fetch", help="then read them with a pull consumer")] = True,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="acknowledge what is read")] = True,
    keep: Keep = False,
) -> None:
    """Publish into a stream and await each acknowledgement, then fetch the messages with a pull consumer.

    The latency is that from a publish to its acknowledgement, and from a pull to the last of its --batch messages.
    """
    payload = payload_of(size)
    config = {"subjects": [subject_text(subject)], "storage": storage, "num_replicas": replicas}
    async with created(at, stream, config, keep=keep), several(at, clients) as found:
        first = int((await at.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]) + 1
        works = [
            asking(client, count, batch, lambda _number: (subject, payload), acknowledgement)
            for client, count in zip(found, shares(msgs, clients), strict=True)
        ]
        results = [await measured(at, "publish", works, total=msgs, size=len(payload))]
        if fetch:
            results.append(await fetched(at, found, stream, first, msgs, len(payload), batch, ack=ack))
    print_measured(at.out, results)


@asynccontextmanager
async def created(at: CommandConnection, stream: str, config: dict[str, Any], *, keep: bool) -> AsyncIterator[None]:
    """The stream is there; what was created for this is deleted. Raises CommandError."""
    try:
        await at.api(f"STREAM.INFO.{token(stream, 'stream')}")
        is_new = False
    except AnsweredError as error:
        if error.err_code != NO_STREAM:
            raise
        await at.api(f"STREAM.CREATE.{stream}", {"name": stream, "allow_direct": True} | config)
        is_new = True
    try:
        yield
    finally:
        if is_new and not keep:
            await at.api(f"STREAM.DELETE.{stream}")


async def fetched(
    at: CommandConnection,
    clients: list[CommandConnection],
    stream: str,
    first: int,
    msgs: int,
    size: int,
    batch: int,
    *,
    ack: bool,
) -> Measured:
    """Read so many messages with one pull consumer of all clients."""
    config = {
        "ack_policy": "explicit" if ack else "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "inactive_threshold": INACTIVE_NS,
        "mem_storage": True,
        "num_replicas": 1,
    } | ({"max_ack_pending": max(1_000, 2 * PULLS * batch * len(clients))} if ack else {})
    consumer = f"bench-{os.getpid()}-{secrets.token_hex(4)}"
    body = {"stream_name": stream, "config": config | {"name": consumer}, "action": "create"}
    await at.api(f"CONSUMER.CREATE.{stream}.{consumer}", body)
    left = [msgs]
    pull = f"{at.login.api}.CONSUMER.MSG.NEXT.{stream}.{consumer}"

    async def puller(client: CommandConnection, meter: Meter) -> None:
        inbox = client.nc.new_inbox()
        messages = await client.nc.subscribe(
            inbox, pending_msgs_limit=PENDING_MESSAGES_MAX, pending_bytes_limit=PENDING_BYTES_MAX
        )
        while left[0] > 0:
            wanted = min(batch, left[0])
            left[0] -= wanted
            body = json.dumps({"batch": wanted, "expires": int(at.timeout_s * 1e9)}).encode()
            started_ns = time.perf_counter_ns()
            await client.nc.publish(pull, body, inbox)
            for place in range(wanted):
                message = await messages.next_msg(timeout=None)
                status = (message.headers or {}).get("Status")
                if status is not None:
                    raise CommandError(f"{wanted - place} of {wanted} messages of a pull did not come: {status}")
                if ack:
                    await client.nc.publish(message.reply, b"+ACK")
                meter.messages += 1
            meter.latencies_ns.append(time.perf_counter_ns() - started_ns)

    async def work(client: CommandConnection, meter: Meter) -> None:
        await client.unless_refused(together(*(puller(client, meter) for _ in range(PULLS))))
        await client.unless_refused(flushed(client))

    works = [partial(work, client) for client in clients]
    result = await measured(at, "fetch", works, total=msgs, size=size)
    await at.api(f"CONSUMER.DELETE.{stream}.{consumer}")
    return result


@GROUP.command("kv", "bench kv BENCH --msgs 50000 --keys 1000", "bench kv BENCH --clients 4 --replicas 3 --json")
async def kv(
    at: CommandConnection,
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="created if it is not there, and deleted then")],
    msgs: Msgs = MESSAGES,
    size: Size = "128",
    clients: Clients = 1,
    batch: Batch = 256,
    keys: Annotated[int, typer.Option("--keys", min=1, help="different keys")] = KEYS,
    replicas: Replicas = 1,
    storage: Storage = "file",
    keep: Keep = False,
) -> None:
    """Put values into a bucket, then get values by their keys."""
    payload = payload_of(size)
    name = f"{PREFIX}{token(bucket, 'bucket')}"
    config = {
        "subjects": [f"$KV.{bucket}.>"],
        "storage": storage,
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "discard": "new",
    }

    def key(number: int) -> str:
        return f"$KV.{bucket}.bench.{number % keys}"

    def value(message: Msg) -> None:
        if (message.headers or {}).get("Status") in FAILED:
            raise CommandError(f"bucket {bucket} has no value of a key that was put: --keys must not exceed --msgs")

    direct = "$JS.API.DIRECT.GET" if at.login.api == "$JS.API" else f"{at.login.api}.DIRECT.GET"
    async with created(at, name, config, keep=keep), several(at, clients) as found:
        parts = list(zip(found, shares(msgs, clients), strict=True))
        puts = [
            asking(each, count, batch, lambda number: (key(number), payload), acknowledgement) for each, count in parts
        ]
        gets = [
            asking(each, count, batch, lambda number: (f"{direct}.{name}.{key(number)}", b""), value)
            for each, count in parts
        ]
        results = [
            await measured(at, "put", puts, total=msgs, size=len(payload)),
            await measured(at, "get", gets, total=msgs, size=len(payload)),
        ]
    print_measured(at.out, results)


@GROUP.command("req", "bench req help.me --msgs 50000 --clients 4", "bench req bench.echo --serve --batch 1 --json")
async def req(
    at: CommandConnection,
    subject: Subject,
    msgs: Msgs = MESSAGES,
    size: Size = "128",
    clients: Clients = 1,
    batch: Batch = 1,
    serve: Annotated[
        bool, typer.Option("--serve", help="answer the requests here, on a connection of its own")
    ] = False,
) -> None:
    """Send requests and await each answer; --batch 1 measures the latency of one alone."""
    subject_text(subject)
    payload = payload_of(size)

    def check(message: Msg) -> None:
        if (message.headers or {}).get("Status") == "503":
            raise CommandError(
                f"no responder on {subject}: start one with `jetraft reply {subject} --echo`, or --serve"
            )

    async with several(at, clients + serve) as found:
        if serve:
            service = found.pop()

            async def answer(message: Msg) -> None:
                await service.nc.publish(message.reply, message.data)

            await service.nc.subscribe(subject, "bench", cb=answer, pending_msgs_limit=PENDING_MESSAGES_MAX)
            await service.unless_refused(flushed(service))
        works = [
            asking(client, count, batch, lambda _number: (subject, payload), check)
            for client, count in zip(found, shares(msgs, clients), strict=True)
        ]
        print_measured(at.out, [await measured(at, "request", works, total=msgs, size=len(payload))])
