"""Puts some of everything into a store, and says what is there, in terms that a client sees."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig, StreamSource

from tests.harness.patience import PATIENCE_S

MESSAGES: Final = 150
API: Final = "$JS.API."
OLD_ACK_WAIT_S: Final = 10 * 365 * 86_400.0  # what is unacknowledged stays so, however old the store is
STATE: Final = ("messages", "bytes", "first_seq", "last_seq", "num_deleted", "num_subjects", "consumer_count")
MESSAGE: Final = ("seq", "subject", "time", "hdrs", "data")
CONSUMER: Final = ("delivered", "ack_floor", "num_ack_pending", "num_pending")
STREAMS: Final = (
    {"name": "PLAIN", "subjects": ["plain.>"], "description": "text: ä€", "metadata": {"team": "a"}},
    {"name": "LAST", "subjects": ["last.>"], "max_msgs_per_subject": 2, "allow_rollup_hdrs": True},
    {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"},
    {"name": "SMALL", "subjects": ["small.>"], "compression": "s2", "max_bytes": 1 << 20},
    {"name": "FROM_LATER", "subjects": ["later"], "first_seq": 1_000_000},
    {"name": "COUNTS", "subjects": ["counts.>"], "allow_msg_counter": True},
    {"name": "TIMED", "subjects": ["timed.>"], "allow_msg_schedules": True, "allow_msg_ttl": True},
    {"name": "DELAYED", "subjects": ["delayed.>"], "metadata": {"jetraft.delayed": "true"}},
    {"name": "LETTERS", "subjects": ["letters.>"]},
)


async def fill(client: Client) -> None:
    """Store messages, delete some, leave some unacknowledged."""
    context = client.jetstream(timeout=PATIENCE_S)
    for fields in STREAMS:
        await ask(client, f"STREAM.CREATE.{fields['name']}", fields)
    for number in range(MESSAGES):
        for stream in ("plain", "last", "work", "small"):
            headers = {"Nats-Msg-Id": f"{stream}-{number}"} if number % 3 == 0 else None
            payload = f"{stream} {number} ".encode() * (number % 15)
            await context.publish(f"{stream}.{number % 7}", payload, headers=headers)
    await context.publish("later", b"")
    for sequence in (5, 6, 7, 120):
        await context.delete_msg("PLAIN", sequence)
    await context.purge_stream("SMALL", keep=50)
    await context.publish("last.3", b"the only one", headers={"Nats-Rollup": "sub"})
    await ask(client, "STREAM.CREATE.MIRROR", {"name": "MIRROR", "mirror": {"name": "PLAIN"}})
    await context.add_stream(StreamConfig(name="SUM", sources=[StreamSource(name="LAST"), StreamSource(name="SMALL")]))
    bucket = await context.create_key_value(bucket="BUCKET", history=3)
    for number in range(40):
        await bucket.put(f"key.{number % 11}", str(number).encode())
    await bucket.delete("key.4")
    await consume(client, context)
    await extend(client, context)


async def consume(client: Client, context: JetStreamContext) -> None:
    """Consumers with a floor, acks above it and messages that wait for one."""
    lasting = ConsumerConfig(durable_name="half", ack_policy=AckPolicy.EXPLICIT, ack_wait=OLD_ACK_WAIT_S)
    for stream, subject in (("PLAIN", "plain.>"), ("WORK", "work.>")):
        reader = await context.pull_subscribe(subject, "half", stream=stream, config=lasting)
        for position, message in enumerate(await reader.fetch(60, timeout=PATIENCE_S)):
            if position < 20 or position % 4 == 0:
                await message.ack_sync(timeout=PATIENCE_S)
    filtered = {"name": "filtered", "durable_name": "filtered", "filter_subjects": ["plain.1", "plain.2"]}
    body = {"stream_name": "PLAIN", "config": {**filtered, "ack_policy": "all", "deliver_policy": "all"}}
    await ask(client, "CONSUMER.CREATE.PLAIN.filtered", body)
    paused = {"durable_name": "paused", "ack_policy": "explicit", "pause_until": "2100-01-01T00:00:00Z"}
    await ask(client, "CONSUMER.CREATE.PLAIN.paused", {"stream_name": "PLAIN", "config": {"name": "paused", **paused}})


async def extend(client: Client, context: JetStreamContext) -> None:
    """What only some versions have: counters, schedules, what waits, dead letters."""
    for number in range(5):
        await context.publish("counts.a", b"", headers={"Nats-Incr": str(number)})
    in_a_century = {"Nats-Schedule": "@at 2100-01-01T00:00:00Z", "Nats-Schedule-Target": "timed.out"}
    await context.publish("timed.schedule", b"one day", headers=in_a_century)
    await context.publish("timed.kept", b"lasts", headers={"Nats-TTL": "876000h"})
    await context.publish("delayed.a", b"one day", headers={"Jetraft-Deliver-At": "2100-01-01T00:00:00Z"})
    dead = {"durable_name": "dead", "name": "dead", "ack_policy": "explicit"}
    config = {**dead, "metadata": {"jetraft.dead_letter": "letters"}}
    await ask(client, "CONSUMER.CREATE.LAST.dead", {"stream_name": "LAST", "config": config})
    reader = await context.pull_subscribe_bind("dead", "LAST")
    (message,) = await reader.fetch(1, timeout=PATIENCE_S)
    await message.term()
    await client.flush()


async def shown(client: Client) -> dict[str, Any]:
    """What there is, without what depends on the time or the version."""
    names = (await ask(client, "STREAM.NAMES", {}))["streams"]
    return {name: await _stream(client, name) for name in sorted(names)}


async def _stream(client: Client, name: str) -> dict[str, Any]:
    info = await ask(client, f"STREAM.INFO.{name}", {})
    state = info["state"]
    digest = hashlib.sha256()
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        found = await ask(client, f"STREAM.MSG.GET.{name}", {"seq": sequence}, may_fail=True)
        if (message := found.get("message")) is not None:
            digest.update(repr([message.get(key) for key in MESSAGE]).encode())
    listed = (await ask(client, f"CONSUMER.LIST.{name}", {})).get("consumers") or []
    return {
        "config": info["config"],
        "created": info["created"],
        "state": {key: state.get(key, 0) for key in STATE},
        "messages": digest.hexdigest(),
        "consumers": {one["name"]: _consumer(one) for one in sorted(listed, key=lambda one: one["name"])},
    }


def _consumer(info: Mapping[str, Any]) -> dict[str, Any]:
    places = {key: info[key] for key in CONSUMER}
    for key in ("delivered", "ack_floor"):
        places[key] = {part: places[key][part] for part in ("consumer_seq", "stream_seq")}
    return {"config": info["config"], **places}


async def settled(client: Client) -> None:
    """Wait until the copies have everything."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            counts = {}
            for name in ("PLAIN", "MIRROR", "LAST", "SMALL", "SUM", "LETTERS"):
                counts[name] = (await ask(client, f"STREAM.INFO.{name}", {}))["state"]["messages"]
            summed = counts["SUM"] >= counts["LAST"] + counts["SMALL"]
            if summed and counts["MIRROR"] == counts["PLAIN"] and counts["LETTERS"]:
                return
            await asyncio.sleep(0.1)


async def ask(client: Client, subject: str, body: object, *, may_fail: bool = False) -> dict[str, Any]:
    """One request to the API."""
    answer = await client.request(API + subject, json.dumps(body).encode(), timeout=PATIENCE_S)
    found: dict[str, Any] = json.loads(answer.data)
    assert may_fail or "error" not in found, (subject, found)
    return found
