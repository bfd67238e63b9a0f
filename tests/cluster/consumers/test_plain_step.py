"""The compiled step of a pull consumer leads to what the step in Python leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.consumers import pull
from jetraft.cluster.consumers._plain_step import plain_step
from jetraft.store.model.config import AckPolicy, DeliverPolicy, ReplayPolicy
from tests.cluster.consumers.test_pull import Client
from tests.cluster.lab import Sent, info_of

if TYPE_CHECKING:
    from jetraft.cluster.consumers.effects import ConsumerEffects, Now

MS = 10**6
S = 10**9
Step = tuple[str, Any]

configs = st.fixed_dictionaries(
    {"ack_policy": st.sampled_from(list(AckPolicy)[:3]), "filter_subject": st.sampled_from(["s.a", "s.*", "s.none"])},
    optional={
        "max_ack_pending": st.integers(1, 6),
        "inactive_threshold": st.sampled_from([S, 60 * S]),
        "ack_wait": st.sampled_from([100 * MS, S]),
        "max_deliver": st.integers(1, 3),
        "headers_only": st.just(value=True),
        "deliver_policy": st.sampled_from([DeliverPolicy.NEW, DeliverPolicy.LAST_PER_SUBJECT]),
        "replay_policy": st.just(ReplayPolicy.ORIGINAL),
    },
)
requests = st.fixed_dictionaries(
    {"batch": st.integers(1, 5)},
    optional={
        "expires": st.sampled_from([150 * MS, 5 * S]),
        "no_wait": st.booleans(),
        "max_bytes": st.integers(40, 300),
        "idle_heartbeat": st.just(50 * MS),
    },
) | st.fixed_dictionaries(
    {"batch": st.integers(1, 9), "expires": st.just(5 * S)}, optional={"idle_heartbeat": st.just(50 * MS)}
)
acks = st.sampled_from([b"", b"-NAK", b"+WPI", b"+TERM", b"+NXT"])
steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from([b"s.a", b"s.b"]), min_size=1, max_size=6)),
    st.tuples(st.just("pull"), st.tuples(requests, st.sampled_from([b"_INBOX.r", b"_INBOX.q"]))),
    st.tuples(
        st.just("ack"), st.tuples(st.integers(0, 9), st.sampled_from([b"", b"-NAK", b"+WPI", b"+TERM", b"+NXT"]))
    ),
    st.tuples(st.just("sleep"), st.sampled_from([MS, 60 * MS, 400 * MS, 2 * S])),
    st.tuples(st.just("listen"), st.booleans()),
    st.tuples(st.just("delete"), st.integers(1, 12)),
)


def encoded(request: dict[str, Any]) -> bytes:
    fields = ",".join(f'"{name}":{str(value).lower()}' for name, value in request.items())
    return f"{{{fields}}}".encode()


def life(config: dict[str, Any], replicas: int, history: list[Step]) -> list[object]:
    """What a client sees of a consumer, and what its leader says of it, step by step."""
    client = Client(b"s.a", b"s.b", b"s.a", stream={"num_replicas": replicas}, **config)
    delivered: list[Sent] = []
    seen: list[object] = []
    for kind, what in history:
        sent: list[Sent] = []
        match kind:
            case "publish":
                for subject in what:
                    client.node.publish(subject, b"0123456789")
                sent = client.node.turn()
            case "pull":
                sent = client.pull(encoded(what[0]), reply=what[1])
            case "ack" if delivered:
                sent = client.ack(delivered[what[0] % len(delivered)], what[1], reply=b"_INBOX.a")
            case "sleep":
                sent = client.node.sleep(what)
            case "listen":
                client.node.subscriptions = {b"_INBOX.>"} if what else {b"_INBOX.q", b"_INBOX.a"}
                sent = client.node.turn()
            case "delete":
                client.replica.machine.store.remove([what])
                client.replica.machine.mutations += 1
        delivered += [message for message in sent if message.reply.startswith(b"$JS.ACK.")]
        seen.append(sent)
        if "c" in client.replica.machine.consumers:
            seen.append(info_of(client.replica, "c"))
    return seen


@settings(max_examples=200)
@given(configs, st.sampled_from([1, 3]), st.lists(steps, min_size=12, max_size=24))
def test_the_compiled_step_is_the_step(config: dict[str, Any], replicas: int, history: list[Step]) -> None:
    found = life(config, replicas, history)
    with patch.object(pull, "plain_step", lambda _core, _now: None):
        expected = life(config, replicas, history)
    assert found == expected


@pytest.mark.parametrize(
    ("config", "request_fields"),
    [
        ({}, {"no_wait": True}),
        ({}, {"no_wait": True, "expires": S}),
        ({}, {"max_bytes": 100}),
        ({}, {"expires": 3 * S, "idle_heartbeat": 50 * MS}),
        ({"max_ack_pending": 2}, {}),
        ({"ack_wait": 100 * MS}, {}),
        ({"inactive_threshold": S}, {"expires": 2 * S}),
        ({"ack_policy": AckPolicy.NONE}, {"expires": S}),
    ],
)
def test_what_makes_a_step_special_is_seen(config: dict[str, Any], request_fields: dict[str, Any]) -> None:
    whole = {"ack_policy": AckPolicy.ALL, "filter_subject": "s.a", **config}
    history: list[Step] = [
        ("pull", ({"batch": 9, **request_fields}, b"_INBOX.r")),
        ("publish", [b"s.a", b"s.b", b"s.a"]),
        ("sleep", 40 * MS),
        ("publish", [b"s.a"]),
        ("sleep", 2 * S),
        ("ack", (1, b"")),
        ("sleep", 2 * S),
    ]
    found = life(whole, 3, history)
    with patch.object(pull, "plain_step", lambda _core, _now: None):
        assert found == life(whole, 3, history)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_reader_that_keeps_up_is_served_by_it(replicas: int) -> None:
    served: list[int] = []

    def counted(core: pull.PullConsumer, now: Now) -> ConsumerEffects | None:
        effects = plain_step(core, now)
        served.append(0 if effects is None else len(effects.sends))
        return effects

    history: list[Step] = [("pull", ({"batch": 5, "expires": 60 * S}, b"_INBOX.r")), ("publish", [b"s.a"] * 4)]
    with patch.object(pull, "plain_step", counted):
        life({"ack_policy": AckPolicy.ALL, "deliver_policy": DeliverPolicy.NEW}, replicas, history)
    assert sum(served) == 1
