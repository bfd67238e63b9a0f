"""What a server accepts it can show: whatever the numbers, times and texts of a request are, its answer can be written.

A real server gets configurations with values from the edges of what their types hold. It may refuse them, with an error
of the catalogue that is not "unavailable", and nothing is stored then; what it accepts it shows in infos and lists, and
it delivers from it. The process lives on, and says so.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetraft.store.model.gotime import ZERO_TIME_NS, format_time
from tests.harness.raw import RawClient
from tests.harness.server import Server

UNAVAILABLE: Final = 10008
ANSWER_TIMEOUT_S: Final = 5.0
Document = dict[str, Any]

int64s = st.sampled_from([0, 1, -1, 10**9, 10**18, 2**62, 2**63 - 1, -(2**63), 2**53]) | st.integers(
    -(2**63), 2**63 - 1
)
uint64s = st.sampled_from([0, 1, 2, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
int32s = st.sampled_from([0, 1, -1, 5, 2**31 - 1, -(2**31)])
times = st.sampled_from([
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:00",
    "1600-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999999Z",
    "2026-01-01T00:00:00.5Z",
    "2262-04-11T23:47:16.854775807Z",
    "2262-04-11T23:47:16.854775808Z",
    "9999-12-31T23:59:59.999999999Z",
    "9999-12-31T23:59:59-23:00",
])  # fmt: skip
texts = st.sampled_from(["", "x", "\ud800", "\udfff\ud800", "\u0000", "\u2028", "é" * 9, "x" * 200])


def documents(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Document]:
    """Configurations with a few of these fields."""
    names = st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen}))


stream_changes = documents({
    "max_msgs": int64s,
    "max_bytes": int64s,
    "max_age": int64s,
    "max_msgs_per_subject": int64s,
    "max_msg_size": int32s,
    "max_consumers": st.sampled_from([0, 1, -1, 2**31, 2**63 - 1]),
    "duplicate_window": int64s,
    "first_seq": uint64s,
    "subject_delete_marker_ttl": int64s,
    "description": texts,
    "metadata": st.dictionaries(texts, texts, max_size=2),
    "consumer_limits": documents({"inactive_threshold": int64s, "max_ack_pending": int32s}),
    "allow_msg_ttl": st.booleans(),
})  # fmt: skip
consumer_changes = documents({
    "pause_until": times,
    "ack_wait": int64s,
    "max_deliver": int64s,
    "max_ack_pending": int64s,
    "max_waiting": int64s,
    "max_batch": int64s,
    "max_bytes": int64s,
    "max_expires": int64s,
    "inactive_threshold": st.sampled_from([0, -1, 10**18, 2**63 - 1, -(2**63)]),  # a short one ends the consumer
    "rate_limit_bps": uint64s,
    "backoff": st.lists(int64s, max_size=2),
    "description": texts,
    "sample_freq": st.sampled_from(["", "100", "9" * 30, "x"]),
    "metadata": st.dictionaries(texts, texts, max_size=2),
    "mem_storage": st.booleans(),
})  # fmt: skip
starts = st.sampled_from([{}, {"deliver_policy": "new"}, {"deliver_policy": "last"}]) | st.one_of(
    st.builds(lambda seq: {"deliver_policy": "by_start_sequence", "opt_start_seq": seq}, uint64s),
    st.builds(lambda time: {"deliver_policy": "by_start_time", "opt_start_time": time}, times),
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of these tests only: they may end it."""
    with Server("jetraft", directory=Path(tmp_path_factory.mktemp("alone"))) as server:
        yield server


def ask(client: RawClient, subject: str, body: Document | None = None) -> Document:
    """An API's answer, once, with no patience: silence and "unavailable" are failures."""
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    client.publish(f"$JS.API.{subject}", b"" if body is None else json.dumps(body).encode(), reply=inbox)
    found = client.messages(sid, 1, ANSWER_TIMEOUT_S)
    assert found, f"no answer to {subject} {body}"
    assert found[0].payload, f"{found[0].status} to {subject} {body}"
    answer: Document = json.loads(found[0].payload)
    assert answer.get("error", {}).get("err_code") != UNAVAILABLE, f"{subject} {body}"
    return answer


def plain(infos: list[Document]) -> list[Document]:
    """Their configurations without the server's own metadata, which lists leave out as in nats-server."""
    return [{key: item for key, item in info["config"].items() if key != "metadata"} for info in infos]


def use(client: RawClient, consumer: str) -> None:
    """Let everything happen to a message that can: an acknowledgement that is late by any measure, a redelivery."""
    found = client.request(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", b'{"batch":1,"no_wait":true}')
    for message in found:
        if message.reply.startswith("$JS.ACK."):
            client.publish(message.reply, b'-NAK {"delay": 9223372036854775807}')
    client.settle()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=stream_changes, update=stream_changes)
def test_a_stream_that_is_accepted_can_be_shown(alone: Server, config: Document, update: Document) -> None:
    with RawClient(alone.address) as client:
        ask(client, "STREAM.DELETE.S")  # of an example that has failed
        base = {"name": "S", "subjects": ["s.>"]}
        created = ask(client, "STREAM.CREATE.S", {**base, **config})
        if "error" in created:
            assert "error" in ask(client, "STREAM.INFO.S")
            assert ask(client, "STREAM.LIST")["total"] == 0
            return
        client.request("s.a", b"x", headers=[("Nats-Msg-Id", "1")])
        before = ask(client, "STREAM.INFO.S")["config"]
        changed = ask(client, "STREAM.UPDATE.S", {**base, **config, **update})
        client.request("s.a", b"x", headers=[("Nats-Msg-Id", "1")])
        shown = ask(client, "STREAM.INFO.S")
        assert shown["config"] == (before if "error" in changed else changed["config"])
        assert plain(ask(client, "STREAM.LIST")["streams"]) == plain([shown])
        ask(client, "INFO")
        ask(client, "STREAM.MSG.GET.S", {"seq": 2**64 - 1})
        ask(client, "STREAM.MSG.GET.S", {"start_time": "9999-12-31T23:59:59Z"})
        ask(client, "STREAM.MSG.DELETE.S", {"seq": 2**64 - 1})
        ask(client, "STREAM.PURGE.S", {"keep": 2**64 - 1})
        assert "error" not in ask(client, "STREAM.DELETE.S")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=consumer_changes, start=starts, update=consumer_changes, pause=times)
def test_a_consumer_that_is_accepted_can_be_shown(
    alone: Server, config: Document, start: Document, update: Document, pause: str
) -> None:
    with RawClient(alone.address) as client:
        ask(client, "STREAM.DELETE.S")  # of an example that has failed
        ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        client.request("s.a", b"x")
        base = {"durable_name": "c", "name": "c", "ack_policy": "explicit", **start}
        created = ask(client, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {**base, **config}})
        if "error" in created:
            assert ask(client, "CONSUMER.LIST.S")["consumers"] == []
        else:
            use(client, "c")
            before = ask(client, "CONSUMER.INFO.S.c")["config"]
            changed = ask(client, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {**base, **config, **update}})
            shown = ask(client, "CONSUMER.INFO.S.c")
            assert shown["config"] == (before if "error" in changed else changed["config"])
            paused = ask(client, "CONSUMER.PAUSE.S.c", {"pause_until": pause})
            kept = ask(client, "CONSUMER.INFO.S.c")
            ended = paused.get("pause_until") == format_time(ZERO_TIME_NS)
            told = None if ended else paused.get("pause_until")
            until = shown["config"].get("pause_until") if "error" in paused else told
            assert kept["config"].get("pause_until") == until
            assert plain(ask(client, "CONSUMER.LIST.S")["consumers"]) == plain([kept])
            use(client, "c")
        assert "error" not in ask(client, "STREAM.DELETE.S")
    assert alone.healthy()


@pytest.mark.parametrize(
    ("subject", "err_code"),
    [
        ("ACCOUNT.STREAM.MOVE.$G.S", 10010),
        ("ACCOUNT.STREAM.CANCEL_MOVE.$G.S", 10010),
        ("STREAM.PEER.EVACUATE.S", 10010),
        ("CONSUMER.PEER.REMOVE.S.c", 10010),
    ],
)
def test_what_is_not_served_is_refused_and_not_ignored(alone: Server, subject: str, err_code: int) -> None:
    with RawClient(alone.address) as client:
        assert ask(client, subject)["error"]["err_code"] == err_code
