"""The comparison itself: what counts as equal, what does not."""

import pytest

from tests.conformance import normalise
from tests.conformance.compare import MISSING, differences


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2)]),
        ({"a": 1}, {}, [("a", 1, MISSING), ("", MISSING, {})]),
        ({"a": []}, {"a": None}, [("a", [], None)]),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ([1], [1, 2], [("#", 1, 2), ("[1]", MISSING, 2)]),
        ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, [("a[0].b", "x", "y")]),
    ],
)
def test_differences_name_the_path(left: object, right: object, expected: list[object]) -> None:
    assert differences(left, right) == expected


def test_times_and_identities_are_masked_but_their_absence_is_seen() -> None:
    shown = normalise.value("", {"created": "2026-01-02T03:04:05.678Z", "leader": "n1", "ts": normalise.ZERO_TIME})
    assert shown == {"created": "<time>", "leader": "<leader>", "ts": normalise.ZERO_TIME}
    assert normalise.value("", {"leader": ""}) == {"leader": ""}


def test_a_time_with_another_zone_is_seen() -> None:
    assert normalise.value("", {"ts": "2026-01-02T03:04:05+01:00"}) != {"ts": "<time>"}


def test_delivery_counts_in_a_reply_subject_are_kept() -> None:
    assert normalise.reply("$JS.ACK.S.C.2.3.4.1700000000000000000.5") == "$JS.ACK.S.C.2.3.4.<ts>.5"
