"""What goes beyond JetStream, as plain nats-py uses it: the keys `jetraft.*` of docs/extensions.md."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import APIError

from tests.clients.nats_py import connection, run, until
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server


async def pair(client: Client, name: str, replicas: int, **stream: object) -> JetStreamContext:
    """A stream `name`, and `name_DEAD` for its dead letters."""
    context = client.jetstream(timeout=PATIENCE_S)
    await context.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], num_replicas=replicas, **stream))  # type: ignore[arg-type]
    await context.add_stream(StreamConfig(name=f"{name}_DEAD", subjects=[f"dead.{name}.>"], num_replicas=replicas))
    return context


def worker(metadata: dict[str, str], **fields: object) -> ConsumerConfig:
    return ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, metadata=metadata, **fields)  # type: ignore[arg-type]


async def letters(context: JetStreamContext, stream: str) -> list[Msg]:
    """All that the stream for dead letters holds, in order."""
    reader = await context.pull_subscribe("", stream=f"{stream}_DEAD", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
    count = (await context.stream_info(f"{stream}_DEAD")).state.messages
    return await reader.fetch(count, timeout=PATIENCE_S) if count else []


def check_advisory(event: dict[str, object], stream: str) -> None:
    assert event["type"] == "io.jetraft.advisory.v1.dead_lettered"
    assert (event["dead_letter_stream"], event["dead_letter_seq"]) == (stream, 1)
    assert (event["stream_seq"], event["cause"], event["reason"]) == (1, "term", "cannot be read")


async def has_letters(context: JetStreamContext, stream: str, count: int) -> bool:
    return (await context.stream_info(f"{stream}_DEAD")).state.messages == count


def test_a_dead_letter_has_the_message_and_why_it_was_given_up(
    servers: Sequence[Server], stream: str, replicas: int
) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = await pair(client, stream, replicas, retention=RetentionPolicy.WORK_QUEUE)
            told = await client.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.DEAD_LETTERED.{stream}.c")
            await client.flush()
            subscription = await context.pull_subscribe(
                "",
                durable="c",
                stream=stream,
                config=worker({"jetraft.dead_letter": "dead"}, max_deliver=2, ack_wait=0.5),
            )
            await context.publish(f"{stream}.a", b"one", headers={"Colour": "red"})
            await context.publish(f"{stream}.b", b"two")
            one, two = await subscription.fetch(2, timeout=PATIENCE_S)
            await client.publish(one.reply, b"+TERM cannot be read")
            await two.nak()
            (two,) = await subscription.fetch(1, timeout=PATIENCE_S)
            await until(lambda: has_letters(context, stream, 2))  # the second, when its last ack wait is over
            first, second = await letters(context, stream)
            assert (first.subject, first.data) == (f"dead.{stream}.c", b"one")
            assert first.headers is not None
            assert second.headers is not None
            said = {name.removeprefix("Jetraft-Dead-Letter-"): value for name, value in first.headers.items()}
            assert said.pop("Nats-Msg-Id")
            assert said.pop("Time")
            assert said == {
                "Colour": "red",
                "Subject": f"{stream}.a",
                "Stream": stream,
                "Consumer": "c",
                "Sequence": "1",
                "Deliveries": "1",
                "Cause": "term",
                "Reason": "cannot be read",
            }
            found = {
                name: second.headers[f"Jetraft-Dead-Letter-{name}"] for name in ("Cause", "Deliveries", "Sequence")
            }
            assert found == {"Cause": "max_deliver", "Deliveries": "2", "Sequence": "2"}
            check_advisory(json.loads((await told.next_msg(PATIENCE_S)).data), f"{stream}_DEAD")

            async def is_empty() -> bool:
                return (await context.stream_info(stream)).state.messages == 0

            await until(is_empty)  # the work queue is done with both

    run(check)


def test_dead_letters_wait_for_their_stream(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas))
            subscription = await context.pull_subscribe(
                "", durable="c", stream=stream, config=worker({"jetraft.dead_letter": "dead"})
            )
            await context.publish(f"{stream}.a", b"one")
            (one,) = await subscription.fetch(1, timeout=PATIENCE_S)
            await one.term()
            await client.flush()
            assert (await context.consumer_info(stream, "c")).num_ack_pending == 1
            await context.add_stream(
                StreamConfig(name=f"{stream}_DEAD", subjects=[f"dead.{stream}.>"], num_replicas=replicas)
            )
            await until(lambda: has_letters(context, stream, 1))

    run(check)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"jetraft.dead_leter": "x"}, "unknown key jetraft.dead_leter in the metadata of a consumer"),
        ({"jetraft.strict_acks": "yes"}, "jetraft.strict_acks is true or false, not 'yes'"),
    ],
)
def test_a_key_that_is_not_known_or_cannot_be_is_refused(
    servers: Sequence[Server], stream: str, replicas: int, metadata: dict[str, str], text: str
) -> None:
    name = stream[:40]

    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], num_replicas=replicas))
            with pytest.raises(APIError) as refused:
                await context.add_consumer(name, worker(metadata))
            assert (refused.value.err_code, refused.value.description) == (10012, text)
            given = {"jetraft.strict_acks": "true", "owner": "me"}
            info = await context.add_consumer(name, worker(given))
            assert info.config.metadata is not None
            assert given.items() <= info.config.metadata.items(), "shown as given"
            with pytest.raises(APIError):
                await context.add_consumer(name, worker(metadata))  # an update
            assert (await context.consumer_info(name, "c")).config.metadata == info.config.metadata
            with pytest.raises(APIError) as refused:
                await context.update_stream(
                    StreamConfig(name=name, subjects=[f"{name}.>"], metadata={"jetraft.x": "1"})
                )
            assert refused.value.err_code == 10052
            await context.delete_stream(name)

    run(check)


def test_a_nak_waits_as_the_backoff_says(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas))
            config = worker({"jetraft.nak_backoff": "true"}, backoff=[0.3, 0.6])
            subscription = await context.pull_subscribe("", durable="c", stream=stream, config=config)
            await context.publish(f"{stream}.a", b"one")
            waits: list[float] = []
            clock = asyncio.get_running_loop().time
            for _ in range(3):
                (found,) = await subscription.fetch(1, timeout=PATIENCE_S)
                began = clock()
                await found.nak()
                (found,) = await subscription.fetch(1, timeout=PATIENCE_S)
                waits.append(clock() - began)
                await found.nak(delay=0.001)  # one with a delay of its own waits for that
            assert waits[0] >= 0.3
            assert all(wait >= 0.6 for wait in waits[1:])

    run(check)


def test_an_ack_of_an_older_delivery_is_refused(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas))
            subscription = await context.pull_subscribe(
                "", durable="c", stream=stream, config=worker({"jetraft.strict_acks": "true"}, ack_wait=0.3)
            )
            await context.publish(f"{stream}.a", b"one")
            (stale,) = await subscription.fetch(1, timeout=PATIENCE_S)
            (newest,) = await subscription.fetch(1, timeout=PATIENCE_S)  # its ack wait is over
            assert newest.metadata.num_delivered == 2
            for body in (b"", b"+ACK", b"-NAK", b"+WPI", b"+TERM", b"+NXT"):
                answer = await client.request(stale.reply, body, timeout=PATIENCE_S)
                assert answer.headers == {"Status": "409", "Description": "Stale Ack"}, body
            await stale.ack()
            await client.flush()
            assert (await context.consumer_info(stream, "c")).num_ack_pending == 1
            answer = await client.request(newest.reply, b"+ACK", timeout=PATIENCE_S)
            assert answer.headers is None
            assert (await context.consumer_info(stream, "c")).num_ack_pending == 0

    run(check)


def test_an_ack_publishes_the_result_in_one_step(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(
                name=stream,
                subjects=[f"{stream}.>"],
                num_replicas=replicas,
                retention=RetentionPolicy.WORK_QUEUE,
            )
            await context.add_stream(config)
            keys = {"jetraft.strict_acks": "true", "jetraft.ack_publish": f"{stream}.done.*"}
            subscription = await context.pull_subscribe(
                f"{stream}.todo", durable="c", stream=stream, config=worker(keys)
            )
            await context.publish(f"{stream}.todo", b"1+1")
            (task,) = await subscription.fetch(1, timeout=PATIENCE_S)
            headers = {"Jetraft-Publish": f"{stream}.done.sum", "Unit": "m"}
            answer = await client.request(task.reply, b"2", headers=headers, timeout=PATIENCE_S)
            assert json.loads(answer.data) == {"stream": stream, "seq": 2}
            stored = await context.get_msg(stream, 2)
            assert (stored.subject, stored.data) == (f"{stream}.done.sum", b"2")
            assert stored.headers == {"Unit": "m", "Jetraft-Acked": "c 1 1"}
            assert (await context.stream_info(stream)).state.messages == 1, "the task is gone"
            again = await client.request(task.reply, b"2", headers=headers, timeout=PATIENCE_S)
            assert again.headers == {"Status": "409", "Description": "Stale Ack"}
            await context.publish(f"{stream}.todo", b"2+2")
            (task,) = await subscription.fetch(1, timeout=PATIENCE_S)
            headers = {"Jetraft-Publish": "elsewhere.sum"}
            answer = await client.request(task.reply, b"4", headers=headers, timeout=PATIENCE_S)
            assert json.loads(answer.data)["error"]["err_code"] == 10003
            assert (await context.consumer_info(stream, "c")).num_ack_pending == 1

    run(check)


def test_a_stream_has_as_many_subjects_as_it_may(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(
                name=stream, subjects=[f"{stream}.>"], num_replicas=replicas, metadata={"jetraft.max_subjects": "2"}
            )
            await context.add_stream(config)
            for subject in ("a", "b", "a"):
                await context.publish(f"{stream}.{subject}", b"x")
            with pytest.raises(APIError, match="maximum subjects exceeded") as refused:
                await context.publish(f"{stream}.c", b"x")
            assert refused.value.err_code == 10077
            await context.purge_stream(stream, subject=f"{stream}.a")
            await context.publish(f"{stream}.c", b"x")
            await context.update_stream(config.evolve(metadata={}))
            await context.publish(f"{stream}.d", b"x")
            assert (await context.stream_info(stream)).state.messages == 3

    run(check)


def test_a_subject_has_as_many_bytes_as_it_may(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(
                name=stream,
                subjects=[f"{stream}.>"],
                num_replicas=replicas,
                metadata={"jetraft.max_bytes_per_subject": "1000"},
            )
            await context.add_stream(config)
            for _ in range(5):
                for subject in ("a", "b"):
                    await context.publish(f"{stream}.{subject}", b"x" * 300)
            state = (await context.stream_info(stream, subjects_filter=">")).state
            assert state.subjects == {f"{stream}.a": 2, f"{stream}.b": 2}
            with pytest.raises(APIError, match="the message needs") as refused:
                await context.publish(f"{stream}.a", b"x" * 1000)
            assert refused.value.err_code == 10077
            await context.update_stream(
                config.evolve(discard=DiscardPolicy.NEW, discard_new_per_subject=True)  # without max_msgs_per_subject
            )
            with pytest.raises(APIError, match="maximum bytes per subject exceeded"):
                await context.publish(f"{stream}.a", b"x" * 300)
            await context.publish(f"{stream}.c", b"x" * 300)
            await context.update_stream(config.evolve(metadata={}))
            await context.publish(f"{stream}.a", b"x" * 1000)

    run(check)


def test_a_publisher_that_is_too_fast_is_told_how_long_to_wait(
    servers: Sequence[Server], stream: str, replicas: int
) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(
                name=stream, subjects=[f"{stream}.>"], num_replicas=replicas, metadata={"jetraft.rate_msgs_per_s": "5"}
            )
            await context.add_stream(config)
            outcomes = await asyncio.gather(
                *(context.publish(f"{stream}.a", b"x") for _ in range(60)), return_exceptions=True
            )
            refused = [outcome for outcome in outcomes if isinstance(outcome, APIError)]
            assert 40 <= len(refused) <= 54
            assert {(error.code, error.err_code) for error in refused} == {(429, 10167)}
            assert refused[-1].description is not None
            assert refused[-1].description.startswith("too many requests: wait ")
            assert refused[-1].description.endswith("ms")
            assert (await context.stream_info(stream)).state.messages == 60 - len(refused)

    run(check)


def test_of_each_key_one_message_is_in_flight(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas))
            await context.add_consumer(stream, worker({"jetraft.key_order": "token 2"}))
            for number in range(30):
                await context.publish(f"{stream}.{number % 3}", b"%d" % number)
            working: set[str] = set()
            done: list[int] = []

            async def work() -> None:
                subscription = await context.pull_subscribe_bind("c", stream)
                while len(done) < 30:
                    try:
                        (found,) = await subscription.fetch(1, timeout=0.5)
                    except TimeoutError:
                        continue
                    assert found.subject not in working, "another worker has a message of this key"
                    working.add(found.subject)
                    await client.flush()  # the others get their turn
                    working.remove(found.subject)
                    done.append(int(found.data))
                    await found.ack()

            await asyncio.gather(*(work() for _ in range(5)))
            assert sorted(done) == list(range(30))
            for key in range(3):
                assert [number for number in done if number % 3 == key] == list(range(key, 30, 3))

    run(check)


def test_a_message_comes_when_it_is_due(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(
                name=stream,
                subjects=[f"{stream}.>"],
                num_replicas=replicas,
                metadata={"jetraft.delayed": "true"},
            )
            await context.add_stream(config)
            clock = asyncio.get_running_loop().time
            began = clock()
            for wait in ("1s", "600ms", "300000000", "24h"):
                await context.publish(f"{stream}.a", wait.encode(), headers={"Jetraft-Delay": wait})
            await context.publish(f"{stream}.a", b"now")
            subscription = await context.subscribe(f"{stream}.>", ordered_consumer=True)
            came = []
            for _ in range(4):
                found = await subscription.next_msg(PATIENCE_S)
                came.append((found.data, clock() - began))
            assert [data for data, _ in came] == [b"now", b"300000000", b"600ms", b"1s"]
            assert all(at >= due for (_, at), due in zip(came, (0, 0.3, 0.6, 1), strict=True))
            state = (await context.stream_info(stream, subjects_filter="$JETRAFT.DELAYED.>")).state
            assert state.messages == 5
            assert state.subjects == {f"$JETRAFT.DELAYED.4.{stream}.a": 1}
            waiting = await context.get_msg(stream, 4)
            assert waiting.headers is not None
            assert waiting.headers["Nats-Schedule-Target"] == f"{stream}.a"
            assert await context.delete_msg(stream, 4)
            assert (await context.stream_info(stream)).state.messages == 4
            with pytest.raises(APIError, match="Jetraft-Delay is a duration"):
                await context.publish(f"{stream}.a", b"x", headers={"Jetraft-Delay": "soon"})
            with pytest.raises(APIError, match=r"jetraft\.delayed can not be removed"):
                await context.update_stream(config.evolve(metadata={}))

    run(check)


def test_a_bucket_whose_reads_are_linearizable_has_what_another_client_wrote(
    servers: Sequence[Server], replicas: int
) -> None:
    async def check() -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connection(server.url)) for server in servers]
            writer = clients[0].jetstream(timeout=PATIENCE_S)
            bucket = await writer.create_key_value(bucket="users", replicas=replicas, direct=True)
            info = await writer.stream_info("KV_users")
            await writer.update_stream(info.config.evolve(metadata={"jetraft.linearizable_reads": "true"}))
            readers = [await client.jetstream(timeout=PATIENCE_S).key_value("users") for client in clients]
            for number in range(50):
                await bucket.put("ann", b"%d" % number)
                for reader in readers:
                    assert (await reader.get("ann")).value == b"%d" % number
            wish = {"Jetraft-Consistency": "linearizable"}
            answer = await clients[-1].request("$JS.API.DIRECT.GET.KV_users.$KV.users.ann", headers=wish)
            assert answer.data == b"49"

    run(check)


def test_giving_up_is_neither_lost_nor_doubled_when_the_leader_is_killed(tmp_path: Path) -> None:
    """The messages are terminated in a row while the leader of their stream dies; each has one letter at the end."""
    messages = 60

    async def check(cluster: Cluster) -> None:
        async with connection(*(node.url for node in cluster.nodes)) as client:
            context = await pair(client, "K", 3)
            config = worker({"jetraft.dead_letter": "dead"}, ack_wait=2)
            subscription = await context.pull_subscribe("", durable="c", stream="K", config=config)
            for number in range(messages):
                await context.publish("K.a", b"%d" % number)
            info = await context.stream_info("K")
            assert info.cluster is not None
            leader = next(node for node in cluster.nodes if node.name == info.cluster.leader)
            for found in await subscription.fetch(messages, timeout=PATIENCE_S):
                await found.term()
                if found.metadata.sequence.stream == messages // 2:
                    await client.flush()
                    leader.kill()

            async def all_are_dead() -> bool:
                try:
                    for found in await subscription.fetch(messages, timeout=1):
                        await found.term()
                except (TimeoutError, APIError):
                    pass
                return await has_letters(context, "K", messages)

            await until(all_are_dead)
            dead = await letters(context, "K")
            assert sorted(int(letter.data) for letter in dead) == list(range(messages))

    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        run(check, cluster)
