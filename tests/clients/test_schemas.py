"""Schemas at publish, as plain nats-py uses them (docs/extensions.md), on one node, on three, and under kills."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import attrs
import pytest
from google.protobuf import descriptor_pb2
from nats.errors import Error as NatsError
from nats.js.api import KeyValueConfig, StreamConfig
from nats.js.errors import APIError, KeyNotFoundError

from tests.clients.nats_py import LOOK_S, connection, run, until
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nats.js import JetStreamContext

    from tests.harness.server import Server

ORDER = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {"lines": {"type": "array", "items": {"properties": {"price": {"type": "number"}}}}},
}
KEYS = {"jetraft.schema_type": "json", "jetraft.schema": json.dumps(ORDER)}
AWAY = (NatsError, APIError, TimeoutError)  # while no leader answers


async def refusal(context: JetStreamContext, subject: str, payload: bytes) -> tuple[int | None, int | None, str | None]:
    with pytest.raises(APIError) as refused:
        await context.publish(subject, payload)
    return refused.value.code, refused.value.err_code, refused.value.description


def test_a_publisher_is_told_which_field_does_not_fit(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas, metadata=KEYS)
            await context.add_stream(config)
            await context.publish(f"{stream}.new", b'{"id":1,"lines":[{"price":2.5}]}')
            said = await refusal(context, f"{stream}.new", b'{"id":2,"lines":[{"price":2.5},{"price":"2.5"}]}')
            assert said == (400, 19001, "message does not fit the schema: /lines/1/price: expected number")
            state = (await context.stream_info(stream)).state
            assert (state.messages, state.last_seq) == (1, 1)

    run(check)


def test_a_schema_is_checked_and_changed_with_the_stream(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas)
            bad = KEYS | {"jetraft.schema": '{"properties":{"id":{"type":"int"}}}'}
            text = "jetraft.schema: /properties/id/type: not a JSON schema: fits none of the 2 schemas of anyOf"
            with pytest.raises(APIError) as refused:
                await context.add_stream(config.evolve(metadata=bad))
            assert (refused.value.err_code, refused.value.description) == (10052, text)
            await context.add_stream(config)
            await context.publish(f"{stream}.a", b"anything")
            with pytest.raises(APIError):
                await context.update_stream(config.evolve(metadata=bad))
            await context.publish(f"{stream}.a", b"anything")  # nothing was changed
            info = await context.update_stream(config.evolve(metadata=KEYS))
            assert info.config.metadata is not None
            assert KEYS.items() <= info.config.metadata.items(), "shown as given"
            assert (await refusal(context, f"{stream}.a", b"anything"))[1] == 19001
            assert (await context.get_msg(stream, 1)).data == b"anything", "what is stored is not judged"
            await context.update_stream(config.evolve(metadata={}))
            await context.publish(f"{stream}.a", b"anything")

    run(check)


def test_a_bucket_has_a_schema_and_still_deletes(servers: Sequence[Server], stream: str, replicas: int) -> None:
    bucket = stream[:40]

    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            kv = await context.create_key_value(KeyValueConfig(bucket=bucket, replicas=replicas))
            info = await context.stream_info(f"KV_{bucket}")
            await context.update_stream(info.config.evolve(metadata=KEYS))
            await kv.put("ann", b'{"id":1,"lines":[]}')
            with pytest.raises(APIError) as refused:
                await kv.put("ann", b'{"id":1}')
            assert refused.value.description == "message does not fit the schema: /lines: missing"
            await kv.delete("ann")
            with pytest.raises(KeyNotFoundError):
                await kv.get("ann")

    run(check)


def test_avro_and_protobuf_in_one_stream(servers: Sequence[Server], stream: str, replicas: int) -> None:
    avro = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "string"}],
    }
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    order.field.add(name="to", number=2, type="TYPE_STRING", label="LABEL_OPTIONAL")
    whole = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    metadata = {
        "jetraft.schema_type.1": "avro",
        "jetraft.schema.1": json.dumps(avro),
        "jetraft.schema_subject.1": f"{stream}.avro",
        "jetraft.schema_type.2": "protobuf",
        "jetraft.schema.2": whole,
        "jetraft.schema_message.2": "shop.Order",
        "jetraft.schema_subject.2": f"{stream}.proto",
    }

    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas, metadata=metadata)
            await context.add_stream(config)
            await context.publish(f"{stream}.avro", b"\x0e\x06ann")
            await context.publish(f"{stream}.proto", b"\x08\x07\x12\x03ann")
            await context.publish(f"{stream}.other", b"no schema says anything of it")
            said = "message does not fit the schema: "
            refused = await refusal(context, f"{stream}.avro", b"\x0e\x08ann")
            assert refused == (400, 19001, said + "/to: expected string, the payload ends")
            refused = await refusal(context, f"{stream}.proto", b"\x08\x07\x18\x03")
            assert refused == (400, 19001, said + "field 3 is not in the schema")

    run(check)


@attrs.define
class Written:
    """What a publisher knows of its messages."""

    stored: set[int] = attrs.Factory(set)
    refused: set[int] = attrs.Factory(set)


def test_no_leader_takes_what_does_not_fit_when_leaders_are_killed(tmp_path: Path) -> None:
    """Every second message does not fit: none of them is stored, and of the others what was acknowledged."""
    messages = 120

    async def check(cluster: Cluster) -> None:
        async with connection(*(node.url for node in cluster.nodes)) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            asking = client.jetstream(timeout=LOOK_S)
            await context.add_stream(StreamConfig(name="K", subjects=["K.>"], num_replicas=3, metadata=KEYS))
            written = Written()

            async def publish(number: int) -> bool:
                lines: object = [] if number % 2 else 0
                payload = json.dumps({"id": number, "lines": lines}).encode()
                try:
                    await asking.publish("K.a", payload, headers={"Nats-Msg-Id": str(number)})
                    written.stored.add(number)
                except APIError as error:
                    if error.err_code != 19001:
                        return False
                    written.refused.add(number)
                except AWAY:
                    return False
                return True

            for number in range(messages):
                if number == messages // 2:
                    info = await context.stream_info("K")
                    assert info.cluster is not None
                    next(node for node in cluster.nodes if node.name == info.cluster.leader).kill()
                await until(lambda number=number: publish(number))  # type: ignore[misc]
            assert written.stored == set(range(1, messages, 2))
            assert written.refused == set(range(0, messages, 2))
            last = (await context.stream_info("K")).state.last_seq
            found = [json.loads((await context.get_msg("K", seq)).data or b"")["id"] for seq in range(1, last + 1)]
            assert found == sorted(written.stored)

    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        run(check, cluster)
