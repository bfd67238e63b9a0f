"""What a page is asked, read from a URL and from the body of a request."""

import pytest

from jetraft.api.monitor.questions import (
    BODY_BYTES_MAX,
    ArgumentError,
    ConnzQuestion,
    StatzQuestion,
    from_pairs,
    from_query,
    pairs_of,
)
from jetraft.api.monitor.subjects import collide, is_literal


def asked(body: bytes) -> ConnzQuestion:
    return from_pairs(ConnzQuestion, pairs_of(body, "ConnzEventOptions"), "ConnzEventOptions")


def test_a_url_and_a_body_ask_the_same() -> None:
    by_url = from_query(ConnzQuestion, {"sort": "idle", "auth": "1", "subs": "detail", "limit": "7", "state": "closed"})
    body = b'{"sort":"idle","auth":true,"subscriptions":true,"subscriptions_detail":true,"limit":7,"state":1}'
    assert asked(body) == by_url


def test_other_fields_are_passed_over_and_names_have_no_case() -> None:
    assert asked(b'{"server_name":5,"LIMIT":3,"more":[1]}') == ConnzQuestion(limit=3)
    assert asked(b"null") == asked(b"") == ConnzQuestion()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"x", "invalid character 'x' looking for beginning of value"),
        (b"nojson", "invalid character 'o' in literal null (expecting 'u')"),
        (b"{", "unexpected end of JSON input"),
        (b" ", "unexpected end of JSON input"),
        (b"{} x", "invalid character 'x' after top-level value"),
        (b"{}{}", "invalid character '{' after top-level value"),
        (b"[]", "json: cannot unmarshal array into Go value of type server.ConnzEventOptions"),
        (
            b'{"limit":"x"}',
            "json: cannot unmarshal string into Go struct field ConnzEventOptions.limit of type int",
        ),
        (b'{"cid":-1}', "json: cannot unmarshal number -1 into Go struct field ConnzEventOptions.cid of type uint64"),
        (
            b'{"state":"closed"}',
            "json: cannot unmarshal string into Go struct field ConnzEventOptions.state of type server.ConnState",
        ),
        (b" " * (BODY_BYTES_MAX + 1), f"a request has {BODY_BYTES_MAX} bytes at most"),
        (b"[" * BODY_BYTES_MAX, None),
    ],
)
def test_a_body_that_is_none_is_refused_with_the_text_of_go(body: bytes, said: str | None) -> None:
    with pytest.raises(ArgumentError) as caught:
        asked(body)
    assert said is None or str(caught.value) == said


def test_a_list_of_accounts_is_read() -> None:
    pairs = pairs_of(b'{"accounts":["A","B"],"include_unused":true}', "X")
    assert from_pairs(StatzQuestion, pairs, "X") == StatzQuestion(accounts=("A", "B"), include_unused=True)


@pytest.mark.parametrize(
    ("wanted", "subject", "same"),
    [
        ("a", "a", True), ("a", "b", False), ("a.*", "a.b", True), ("*.b", "a.*", True), ("a.>", "a", False),
        ("a.>", "a.b.c", True), ("a.b.c", "a.>", True), ("a.b", "a.b.c", False), ("a..", "a", False), ("", "a", False),
    ],
)  # fmt: skip
def test_patterns_collide_when_a_subject_matches_both(wanted: str, subject: str, same: bool) -> None:  # noqa: FBT001
    assert collide(wanted, subject.encode()) is same


@pytest.mark.parametrize(("subject", "literal"), [("a.b", True), ("a.*", False), (">", False), ("a..b", False)])
def test_a_subject_for_publishing_has_no_wildcards(subject: str, literal: bool) -> None:  # noqa: FBT001
    assert is_literal(subject) is literal
