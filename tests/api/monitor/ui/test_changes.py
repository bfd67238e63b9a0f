"""What is told of two looks at the same streams."""

from typing import Any

import pytest

from jetraft.api.monitor.ui.changes import Changes, Glance

BEFORE = Glance(account="A", stream="S", leader="n1", term=3)


def told(*looks: Glance) -> list[dict[str, Any]]:
    """What a second round tells after a first one that has BEFORE."""
    changes = Changes()
    assert changes.look(BEFORE) == []
    assert changes.end_round() == []
    found = [event for look in looks for event in changes.look(look)]
    return found + changes.end_round()


def evolved(**fields: Any) -> Glance:
    return Glance(**{"account": "A", "stream": "S", "leader": "n1", "term": 3, **fields})


@pytest.mark.parametrize(
    ("look", "what"),
    [
        (evolved(), []),
        (evolved(leader="n2", term=4), ["leader_changed"]),
        (evolved(leader="", term=4), ["leader_lost"]),
        (evolved(term=5), ["leader_elected_again"]),
        (evolved(failed="torn block"), ["log_failed"]),
        (evolved(offline=("n2", "n3")), ["node_offline", "node_offline"]),
        (evolved(leader="n2", offline=("n1",)), ["leader_changed", "node_offline"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_difference_is_an_event(look: Glance, what: list[str]) -> None:
    assert [event["what"] for event in told(look)] == what


def test_a_new_leader_is_told_with_the_one_before() -> None:
    (event,) = told(evolved(leader="n2", term=4))
    assert event == {"what": "leader_changed", "account": "A", "stream": "S", "leader": "n2", "before": "n1", "term": 4}


def test_streams_come_and_go_and_the_first_round_tells_nothing() -> None:
    assert [event["what"] for event in told()] == ["stream_gone"]
    other = Glance(account="A", stream="T", leader="n1")
    assert [event["what"] for event in told(BEFORE, other)] == ["stream_added"]


def test_a_node_that_comes_back_is_told_once() -> None:
    found = told(evolved(offline=("n2",)), evolved(), evolved())
    assert [event["what"] for event in found] == ["node_offline", "node_online"]
