"""LatencyParts of metrics that other nodes send: what is none changes nothing."""

import orjson
import pytest

from jetraft.api.traces.latency import PART_BYTES_MAX, LatencyPart, number_of


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'"x"',
        b"{" * 100_000,
        b'{"number": true, "service": 1, "responder": {}}',
        b'{"number": 1, "service": -1, "responder": {}}',
        b'{"number": 1, "service": 1.5, "responder": {}}',
        b'{"number": 1, "service": 1, "responder": []}',
        b'{"number": 1, "service": 1, "responder": {"acc": {}}}',
        b'{"number": 1, "service": 1, "responder": {"rtt": "1"}}',
        orjson.dumps({"number": 1, "service": 1, "responder": {"acc": "x" * PART_BYTES_MAX}}),
    ],
)
def test_a_bad_part_is_none(payload: bytes) -> None:
    assert LatencyPart.read(payload) is None


def test_a_part_is_read() -> None:
    found = LatencyPart.read(b'{"number": 5, "service": 7, "responder": {"acc": "A", "rtt": 3}}')
    assert found == (5, LatencyPart(service_ns=7, responder={"acc": "A", "rtt": 3}))


@pytest.mark.parametrize(("identity", "number"), [("0", 0), ("z", 61), ("01", 62), ("zzzzzzzzzzz", 62**11 - 1)])
def test_the_last_token_of_a_reply_subject_is_a_number(identity: str, number: int) -> None:
    assert number_of(identity) == number
