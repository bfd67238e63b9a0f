"""What becomes of the request of a server that reads a stream."""

import attrs
import pytest

from jetraft.store.model.config import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy, StreamConfig
from jetraft.store.model.validation.sourcing import asks_to_read, is_upgraded, upgraded

READER = ConsumerConfig(
    name="r",
    ack_policy=AckPolicy.NONE,
    ack_wait=5,
    max_deliver=1,
    inactive_threshold=7,
    deliver_subject="to",
    direct=True,
    sourcing=True,
)


@pytest.mark.parametrize(
    "config",
    [
        attrs.evolve(READER, name=""),
        attrs.evolve(READER, durable_name="r"),
        attrs.evolve(READER, direct=False),
        attrs.evolve(READER, sourcing=False),
    ],
)
def test_what_does_not_name_itself_as_a_reader_is_left_as_it_is(config: ConsumerConfig) -> None:
    assert not asks_to_read(config)
    assert not is_upgraded(config, StreamConfig(retention=RetentionPolicy.WORK_QUEUE))


def test_only_what_removes_acknowledged_messages_makes_it_durable() -> None:
    upgrades = {policy: is_upgraded(READER, StreamConfig(retention=policy)) for policy in RetentionPolicy}
    assert upgrades == {
        RetentionPolicy.LIMITS: False,
        RetentionPolicy.INTEREST: True,
        RetentionPolicy.WORK_QUEUE: True,
    }


def test_a_durable_one_waits_for_no_ack_and_does_not_go_away() -> None:
    config = upgraded(READER, None)
    assert (config.durable_name, config.ack_policy) == ("r", AckPolicy.FLOW_CONTROL)
    assert (config.ack_wait, config.max_deliver, config.inactive_threshold, config.direct) == (0, -1, 0, False)


def test_one_that_exists_keeps_the_start_from_which_it_was_made() -> None:
    first = upgraded(READER, None)
    later = attrs.evolve(READER, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=9)
    assert upgraded(later, first) == first
