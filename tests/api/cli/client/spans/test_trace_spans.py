"""A trace document becomes spans; what is none is refused with the reason."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.cli.client.spans.trace_spans import spans_of, unix_ns

TRACE, SENDER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SENDER}-01"


def document(*events: dict[str, Any], **headers: str) -> dict[str, Any]:
    listed = {key.replace("_", "-"): [value] for key, value in ({"traceparent": PARENT} | headers).items()}
    return {
        "server": {"name": "n1", "id": "N1"},
        "request": {"header": listed, "msgsize": 7},
        "events": [
            {"type": "in", "ts": "2026-01-02T03:04:05.000000001Z", "kind": 0, "cid": 4, "acc": "A", "subj": "s"},
            *events,
        ],
    }


def test_a_message_that_was_stored_is_two_spans_below_the_senders() -> None:
    whole, stored = spans_of(document({"type": "js", "ts": "2026-01-02T03:04:05.5Z", "stream": "S", "subject": "s"}))
    assert (whole.name, f"{whole.trace_id:032x}", f"{whole.parent_id:016x}") == ("publish s", TRACE, SENDER)
    assert (stored.name, stored.trace_id, stored.parent_id) == ("store S", whole.trace_id, whole.span_id)
    assert whole.start_ns == stored.start_ns == unix_ns("2026-01-02T03:04:05Z") + 1
    assert whole.end_ns == stored.end_ns == unix_ns("2026-01-02T03:04:05.5Z")
    assert whole.attributes["nats.account"] == "A"
    assert whole.attributes["messaging.message.body.size"] == 7


def test_the_span_of_the_next_server_is_below_the_event_that_sent_the_message_there() -> None:
    sent = {"type": "eg", "ts": "2026-01-02T03:04:05.1Z", "kind": 1, "name": "n2", "hop": "1"}
    _, first = spans_of(document(sent))
    (second,) = spans_of(document(Nats_Trace_Hop="1") | {"server": {"name": "n2", "id": "N2"}})
    assert second.parent_id == first.span_id
    assert second.trace_id == first.trace_id


def test_two_messages_with_one_parent_have_ids_of_their_own() -> None:
    (one,) = spans_of(document())
    later = document()
    later["events"][0]["ts"] = "2026-01-02T03:04:06Z"
    (other,) = spans_of(later)
    assert one.span_id != other.span_id


def test_a_refusal_is_the_error_of_its_span() -> None:
    _, refused = spans_of(document({"type": "js", "ts": "2026-01-02T03:04:05.1Z", "stream": "S", "error": "full"}))
    assert refused.error == "full"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({}, "no event of type `in`"),
        ({"events": 7}, "no event of type `in`"),
        (document(traceparent="00-0-0-1"), "no `traceparent`"),
        (document({"type": "js", "ts": "yesterday"}), "'yesterday' is no time in UTC"),
    ],
)
def test_what_is_no_trace_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(spans_of(wrong))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "ts", "hop", "kind", "x"]), inner)
    ),
    max_leaves=8,
)


@given(st.lists(json_values, max_size=4))
def test_whatever_stands_in_a_trace_is_spans_or_refused(events: list[Any]) -> None:
    given_events = document()
    given_events["events"] += events
    try:
        found = list(spans_of(given_events))
    except ValueError:
        return
    assert all(span.start_ns <= span.end_ns and span.span_id for span in found)
