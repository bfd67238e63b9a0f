"""The three ways in which nats-server reads a body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.jetstream.call import Call, page_of
from jetraft.store.model.errors import ApiError
from jetraft.store.model.requests import JSApiConsumersRequest


def call(body: bytes) -> Call:
    return Call(account="$G", names=("S", "c"), body=body)


@pytest.mark.parametrize("body", [b"", b"{}", b" { } "])
def test_an_empty_body_is_empty(body: bytes) -> None:
    call(body).require_empty_body()


@pytest.mark.parametrize("body", [b"x", b"null", b"[]", b'{"a":1}', b"0", b" ", b'""', b"\xff"])
def test_anything_else_is_not(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        call(body).require_empty_body()
    assert caught.value.err_code == 10038


@pytest.mark.parametrize(("body", "offset"), [(b"", 0), (b"x", 0), (b" \n", 0), (b'{"offset":3}', 3), (b"  {}", 0)])
def test_an_optional_body_is_read_when_it_begins_like_json(body: bytes, offset: int) -> None:
    assert call(body).optional_body(JSApiConsumersRequest).offset == offset


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"foo":1}', b'{"offset":"x"}'])
def test_an_optional_body_that_begins_like_json_must_be_right(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        call(body).optional_body(JSApiConsumersRequest)
    assert caught.value.err_code == 10025


@pytest.mark.parametrize(("body", "err_code"), [(b"", 10003), (b"x", 10025), (b"{", 10025)])
def test_a_required_body_must_be_there_and_right(body: bytes, err_code: int) -> None:
    with pytest.raises(ApiError) as caught:
        call(body).required_body(JSApiConsumersRequest)
    assert caught.value.err_code == err_code


@given(st.integers(0, 5000), st.integers(-10, 6000), st.integers(1, 1024))
def test_pages_stay_inside_and_are_at_most_a_page_long(total: int, offset: int, limit: int) -> None:
    start, end = page_of(total, offset, limit)
    assert 0 <= start <= end <= total
    assert end - start <= limit
    assert start == min(max(offset, 0), total)
    assert end == total or end - start == limit
