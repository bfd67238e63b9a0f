"""What a request for /healthz asks, and what is not there. The reference judges in tests/conformance."""

import orjson
import pytest

from jetraft.api.monitor.health import HealthStatus, missing
from jetraft.api.monitor.questions import ArgumentError, HealthQuestion, from_query


class Known:
    """One account with one stream with one consumer; the replica of the stream `far` is elsewhere."""

    def has_account(self, account: str) -> bool:
        return account == "A"

    def has_stream(self, account: str, stream: str) -> bool:
        return account == "A" and stream in {"S", "far"}

    def has_consumer(self, account: str, stream: str, consumer: str) -> bool | None:
        return None if stream == "far" else (account, stream, consumer) == ("A", "S", "d")


@pytest.mark.parametrize(
    ("names", "status"),
    [("", 200), ("A", 200), ("B", 404), ("A S", 200), ("A T", 404), ("A S d", 200), ("A S e", 404), ("A far d", 400)],
)
def test_what_is_not_there_is_told_and_what_cannot_be_told_is_refused(names: str, status: int) -> None:
    arguments = dict(zip(("account", "stream", "consumer"), names.split(), strict=False))
    found = missing(from_query(HealthQuestion, arguments), Known())
    assert (200 if found is None else found.status) == status


def test_an_argument_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(ArgumentError, match='parsing "x": invalid syntax'):
        from_query(HealthQuestion, {"js-meta-only": "x"})


def test_an_unhealthy_node_has_its_reason_and_its_notice_in_both_forms() -> None:
    status = HealthStatus(status=503, error="why", notice="note")
    brief, long = (orjson.loads(status.page(HealthQuestion(details=details)).body) for details in (False, True))
    assert brief == {"status": "unavailable", "status_code": 503, "error": "why", "notice": "note"}
    assert long == {"status": "error", "errors": [{"type": "JETSTREAM", "error": "why"}], "notice": "note"}
