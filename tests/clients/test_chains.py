"""Chained streams as plain nats-py sees them: whoever reads can recompute the head, and proofs lead to it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import pytest
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamSource,
)
from nats.js.errors import APIError

from tests.clients.nats_py import connection, run, until
from tests.harness.patience import PATIENCE_S
from tests.store.stream import naive_merkle as naive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from tests.harness.server import Server

CHAIN: Final = {"jetraft.chain": "sha256"}


def chained(name: str, replicas: int, **fields: Any) -> StreamConfig:
    wanted = {"subjects": [f"{name}.>"], "num_replicas": replicas, "metadata": CHAIN, **fields}
    return StreamConfig(name=name, **{"deny_delete": True, "deny_purge": True, **wanted})


async def ask(client: Client, what: str, stream: str, body: object = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    answer = await client.request(f"$JS.API.JETRAFT.CHAIN.{what}.{stream}", payload, timeout=PATIENCE_S)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def everything(context: JetStreamContext, stream: str) -> list[Msg]:
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    reader = await context.pull_subscribe("", stream=stream, config=config)
    count = (await context.stream_info(stream)).state.messages
    found: list[Msg] = []
    while len(found) < count:
        found += await reader.fetch(min(100, count - len(found)), timeout=PATIENCE_S)
    await reader.unsubscribe()
    return found


def recomputed(messages: Sequence[Msg]) -> str:
    """As docs/extensions.md shows it."""
    trees: list[tuple[int, bytes]] = []  # (leaves, hash) of complete subtrees, from the left
    for msg in messages:
        tokens = msg.reply.split(".")
        headers = msg.headers or {}
        lines = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        subject, block = msg.subject.encode(), lines.encode() if headers else b""
        leaf = b"\x00\x01" + int(tokens[5]).to_bytes(8, "big") + int(tokens[7]).to_bytes(8, "big")
        leaf += len(subject).to_bytes(4, "big") + subject + len(block).to_bytes(4, "big") + block + msg.data
        size, value = 1, sha256(leaf).digest()
        while trees and trees[-1][0] == size:
            value = sha256(b"\x01" + trees.pop()[1] + value).digest()
            size *= 2
        trees.append((size, value))
    head = trees.pop()[1]
    while trees:
        head = sha256(b"\x01" + trees.pop()[1] + head).digest()
    return head.hex()


async def fill(client: Client, stream: str) -> None:
    """Messages of several kinds: with and without headers, empty, twice under one id, one batch, one large."""
    context = client.jetstream(timeout=PATIENCE_S)
    for number in range(5):
        await context.publish(f"{stream}.a", b"message %d" % number)
    await context.publish(f"{stream}.b", b"", headers={"Colour": "red", "Shape": "round"})
    for _ in range(2):
        await context.publish(f"{stream}.b", b"once", headers={"Nats-Msg-Id": "one"})
    batch = {"Nats-Batch-Id": "b"}
    for sequence in (1, 2):
        await client.publish(f"{stream}.c", b"member", headers={**batch, "Nats-Batch-Sequence": str(sequence)})
    last = {**batch, "Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
    answer = await client.request(f"{stream}.c", b"member", headers=last, timeout=PATIENCE_S)
    assert "error" not in json.loads(answer.data)
    await context.publish(f"{stream}.d", b"x" * 100_000)


def test_whoever_reads_can_recompute_the_head(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(chained(stream, replicas))
            empty = await ask(client, "HEAD", stream)
            assert (empty["size"], empty["head"]) == (0, sha256().hexdigest())
            body = {**chained(stream, replicas).as_dict(), "allow_atomic": True}
            await client.request(f"$JS.API.STREAM.UPDATE.{stream}", json.dumps(body).encode(), timeout=PATIENCE_S)
            await fill(client, stream)
            messages = await everything(context, stream)
            assert len(messages) == 11
            found = await ask(client, "HEAD", stream)
            assert found == {
                "type": "io.jetraft.api.v1.chain_head_response",
                "stream": stream,
                "algorithm": "sha256",
                "size": 11,
                "head": recomputed(messages),
                "first_seq": 1,
                "last_seq": 11,
                "gaps": 0,
                "lost": 0,
            }
            for size in range(1, 11):
                assert (await ask(client, "HEAD", stream, {"size": size}))["head"] == recomputed(messages[:size])

    run(check)


def test_proofs_lead_to_the_head(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(chained(stream, replicas))
            for number in range(13):
                await context.publish(f"{stream}.a", b"message %d" % number)
            head = bytes.fromhex((await ask(client, "HEAD", stream))["head"])
            for message in await everything(context, stream):
                seq, ts_ns = message.metadata.sequence.stream, int(message.reply.split(".")[7])
                proof = await ask(client, "PROOF", stream, {"seq": seq})
                leaf = naive.message(seq, ts_ns, message.subject.encode(), b"", message.data)
                path = [bytes.fromhex(one) for one in proof["path"]]
                assert (proof["leaf"], proof["leaf_index"], proof["size"]) == (leaf.hex(), seq - 1, 13)
                assert naive.included(leaf, proof["leaf_index"], 13, path, head)
                assert not naive.included(naive.leaf(b"another"), proof["leaf_index"], 13, path, head)
            for older in range(1, 13):
                proof = await ask(client, "CONSISTENCY", stream, {"from": older})
                path = [bytes.fromhex(one) for one in proof["path"]]
                older_head = bytes.fromhex((await ask(client, "HEAD", stream, {"size": older}))["head"])
                assert (proof["from"], proof["to"]) == (older, 13)
                assert naive.consistent(older, 13, path, older_head, head)
                assert not naive.consistent(older, 13, path, naive.leaf(b"another"), head)

    run(check)


def test_a_mirror_has_the_head_of_its_origin(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(chained(stream, replicas))
            mirror = chained(f"M{stream}", replicas, subjects=None, mirror=StreamSource(name=stream))
            await context.add_stream(mirror)
            for number in range(40):
                await context.publish(f"{stream}.a", b"message %d" % number, headers={"Number": str(number)})
            head = await ask(client, "HEAD", stream)

            async def has_all() -> bool:
                return bool((await ask(client, "HEAD", f"M{stream}"))["size"] == head["size"])

            await until(has_all)
            assert (await ask(client, "HEAD", f"M{stream}"))["head"] == head["head"]

    run(check)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"metadata": {"jetraft.chain": "md5"}}, "jetraft.chain is sha256, not 'md5'"),
        ({"deny_purge": False}, "jetraft.chain needs deny_delete and deny_purge"),
        ({"deny_delete": False}, "jetraft.chain needs deny_delete and deny_purge"),
        ({"max_age": 60}, "jetraft.chain is not for streams with a max age, which removes messages"),
        ({"max_msgs": 10}, "jetraft.chain needs discard new where max_msgs or max_bytes is set"),
        ({"max_bytes": 1000}, "jetraft.chain needs discard new where max_msgs or max_bytes is set"),
        (
            {"max_msgs_per_subject": 1},
            "jetraft.chain needs discard_new_per_subject where a limit of subjects is set",
        ),
        (
            {"metadata": {**CHAIN, "jetraft.max_bytes_per_subject": "9"}},
            "jetraft.chain needs discard_new_per_subject where a limit of subjects is set",
        ),
        (
            {"retention": RetentionPolicy.INTEREST},
            "jetraft.chain needs retention limits: acks would remove messages",
        ),
        (
            {"retention": RetentionPolicy.WORK_QUEUE},
            "jetraft.chain needs retention limits: acks would remove messages",
        ),
        ({"storage": StorageType.MEMORY}, "jetraft.chain is for streams on disk"),
        ({"allow_msg_ttl": True}, "jetraft.chain is not for streams with message TTLs"),
        (
            {"metadata": {**CHAIN, "jetraft.delayed": "true"}},
            "jetraft.chain is not for streams with schedules or delayed messages",
        ),
    ],
)
def test_what_removes_messages_is_refused_by_name(
    servers: Sequence[Server], stream: str, replicas: int, fields: dict[str, Any], text: str
) -> None:
    name = f"C{sha256(stream.encode()).hexdigest()[:20]}"

    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            with pytest.raises(APIError) as refused:
                await context.add_stream(chained(name, replicas, **fields))
            assert (refused.value.err_code, refused.value.description) == (10052, text)

    run(check)


def test_what_a_chained_stream_promised_is_not_taken_back(
    servers: Sequence[Server], stream: str, replicas: int
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(chained(stream, replicas))
            for number in range(5):
                await context.publish(f"{stream}.a", b"message %d" % number)
            head = await ask(client, "HEAD", stream)
            stays = "jetraft.chain is set when a stream is created, and stays"
            aged = "jetraft.chain is not for streams with a max age, which removes messages"
            for fields, text in (({"metadata": {}}, stays), ({"max_age": 60}, aged)):
                with pytest.raises(APIError) as refused:
                    await context.update_stream(chained(stream, replicas, **fields))
                assert (refused.value.err_code, refused.value.description) == (10052, text)
            for take in (context.delete_msg(stream, 2), context.purge_stream(stream)):
                with pytest.raises(APIError):
                    await take
            await context.update_stream(chained(stream, replicas, max_msgs=3, discard=DiscardPolicy.NEW))
            with pytest.raises(APIError) as refused:
                await context.publish(f"{stream}.a", b"one too many")
            assert refused.value.err_code == 10077
            assert await ask(client, "HEAD", stream) == head
            assert (await context.stream_info(stream)).state.messages == 5

            plain = StreamConfig(name=f"P{stream}", subjects=[f"P{stream}"], num_replicas=replicas)
            await context.add_stream(plain)
            with pytest.raises(APIError) as refused:
                await context.update_stream(plain.evolve(metadata=CHAIN, deny_delete=True, deny_purge=True))
            assert refused.value.description == stays
            error = (await ask(client, "HEAD", f"P{stream}"))["error"]
            assert (error["err_code"], error["description"]) == (
                10003,
                "the stream has no chain: it was created without jetraft.chain",
            )

    run(check)


@pytest.mark.parametrize(
    ("what", "body", "code"),
    [
        ("HEAD", {"size": 4}, 10003),
        ("HEAD", {"size": -1}, 10025),
        ("HEAD", {"size": 2**64}, 10025),
        ("HEAD", {"size": "x"}, 10025),
        ("HEAD", {"more": 1}, 10025),
        ("PROOF", None, 10003),
        ("PROOF", {"seq": 0}, 10037),
        ("PROOF", {"seq": 4}, 10037),
        ("PROOF", {"seq": 2**64 - 1}, 10037),
        ("PROOF", {"seq": 3, "size": 2}, 10037),
        ("PROOF", {"seq": 1, "size": 2**63}, 10003),
        ("PROOF", [1], 10025),
        ("CONSISTENCY", None, 10003),
        ("CONSISTENCY", {"from": 3, "to": 2}, 10003),
        ("CONSISTENCY", {"from": 9}, 10003),
        ("CONSISTENCY", {"from": {}, "to": 2}, 10025),
    ],
)
def test_a_question_that_cannot_be_has_an_error(
    servers: Sequence[Server], replicas: int, what: str, body: object, code: int
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(chained("BAD", replicas))
            if not (await context.stream_info("BAD")).state.messages:
                for number in range(3):
                    await context.publish("BAD.a", b"%d" % number)
            before = await ask(client, "HEAD", "BAD")
            assert (await ask(client, what, "BAD", body))["error"]["err_code"] == code
            assert await ask(client, "HEAD", "BAD") == before

    run(check)
