"""Configurations of consumers out of the log: what they say, and what they share."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.state import commands
from jetraft.cluster.state.consumer_configs import read_config
from jetraft.cluster.state.snapshot import encode_config
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import AckPolicy, ConsumerConfig, DeliverPolicy
from jetraft.store.model.errors import ApiError
from jetraft.store.stream.consumer_state import ConsumerState
from tests.cluster.lab import Node, add_consumer, start_stream

MANY = 2_000
BYTES_EACH_MAX = 1_150  # 1,020 are taken; with a configuration of its own each takes 1,600

configs = st.builds(
    ConsumerConfig,
    name=st.sampled_from(["", "c", "d"]),
    durable_name=st.sampled_from(["", "c", "d"]),
    description=st.text(max_size=5),
    deliver_policy=st.sampled_from(DeliverPolicy),
    opt_start_seq=st.integers(0, 2**64 - 1),
    ack_policy=st.sampled_from(AckPolicy),
    ack_wait=st.integers(0, 2**63 - 1),
    backoff=st.lists(st.integers(0, 10), max_size=2).map(tuple),
    filter_subject=st.sampled_from(["", "a.b", "c"]),
    filter_subjects=st.lists(st.sampled_from(["a.b", "c"]), max_size=2).map(tuple),
    metadata=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@given(configs)
def test_a_configuration_is_read_as_it_was_written(config: ConsumerConfig) -> None:
    body = encode_config(config)
    assert read_config(body, "c") == ConsumerConfig.from_json(body)
    assert encode_config(read_config(body, "c")) == body


@pytest.mark.parametrize("body", [b'{"Durable_Name":"c","NAME":"x"}', b'{"name":null}', b"{}", b"null", b""])
def test_what_no_server_writes_is_read_as_a_request_is(body: bytes) -> None:
    assert read_config(body, "c") == ConsumerConfig.from_json(body)


@pytest.mark.parametrize("body", [b"[1]", b'{"name":3}', b'{"ack_wait":"x"}', b"\xff"])
def test_what_cannot_be_read_fails_in_the_same_way(body: bytes) -> None:
    with pytest.raises(ApiError) as expected:
        ConsumerConfig.from_json(body)
    with pytest.raises(ApiError) as raised:
        read_config(body, "c")
    assert str(raised.value) == str(expected.value)


def test_consumers_that_differ_in_names_and_subjects_share_the_rest() -> None:
    names = ["consumer-one", "consumer-two"]
    one, two = (
        read_config(
            encode_config(
                ConsumerConfig(name=name, durable_name=name, filter_subject=name, ack_wait=10**12, metadata={"a": "b"})
            ),
            name,
        )
        for name in names
    )
    assert one.name is one.durable_name is names[0]
    assert two.filter_subject == "consumer-two"
    assert one.metadata is two.metadata
    assert one.ack_wait is two.ack_wait


def test_a_consumer_that_rests_takes_a_kilobyte() -> None:
    node = Node()
    machine = start_stream(node, MemLog()).machine
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=30 * 10**9, metadata={"_nats.req.level": "0"})
    rest = encode_config(config).removeprefix(b"{")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(MANY):
        body = b'{"durable_name":"idle%d",' % number + rest
        create = commands.CreateConsumer(f"idle{number}", body, 17 * 10**17 + number)
        (command,) = commands.decode_consumer_commands(commands.encode_consumer_commands([create]))
        machine._apply_consumer_command(command)
    machine.snapshot()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken / MANY < BYTES_EACH_MAX


def test_a_checkpoint_packs_no_consumer_that_is_as_it_was_created(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    replica = start_stream(node)
    for number in range(3):
        add_consumer(node, replica, durable_name=f"c{number}")
    monkeypatch.setattr(ConsumerState, "to_tuple", lambda state: pytest.fail(f"{state.name} is packed again"))
    before = replica.machine.snapshot()
    monkeypatch.undo()
    for state in replica.machine.consumers.values():
        state.packed = b""
    assert replica.machine.snapshot() == before, "packed at its creation as it is later"
