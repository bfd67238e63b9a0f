"""Header blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model import message
from jetraft.store.model.message import BadHeaderError

names = st.from_regex(rb"[!-9;-~]{1,8}", fullmatch=True)
values = st.from_regex(rb"([!-~]([ -~]{0,8}[!-~])?)?", fullmatch=True)
BLOCK = b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id:  id \t\r\nA: 2\r\nEmpty:\r\n\r\n"


def test_a_value_is_the_first_of_its_name_without_white_space() -> None:
    assert message.get(BLOCK, b"A") == b"1"
    assert message.get(BLOCK, b"Nats-Msg-Id") == b"id"
    assert message.get(BLOCK, b"Empty") == b""


def test_names_are_matched_exactly() -> None:
    assert message.get(BLOCK, b"a") is None
    assert message.get(BLOCK, b"Msg-Id") is None
    assert message.get(BLOCK, b"Nats-Msg") is None
    assert message.get(b"", b"A") is None


def test_a_value_that_looks_like_a_header_is_not_one() -> None:
    assert message.get(b"NATS/1.0\r\nX: A: 5\r\n\r\n", b"A") is None


def test_strip_removes_every_line_of_a_name() -> None:
    assert message.strip(BLOCK, b"A") == b"NATS/1.0\r\nNats-Msg-Id:  id \t\r\nEmpty:\r\n\r\n"
    assert message.strip(BLOCK, b"A", b"Nats-Msg-Id", b"Empty") == b""
    assert message.strip(b"", b"A") == b""


def test_append_begins_or_continues_a_block() -> None:
    begun = message.append(b"", b"A", b"1")

    assert begun == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert message.append(begun, b"B", b"2") == b"NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n"


def test_status_blocks_are_exact() -> None:
    assert message.status(404, b"No Messages") == b"NATS/1.0 404 No Messages\r\n\r\n"
    assert message.status(100) == b"NATS/1.0 100\r\n\r\n"
    pending = {message.PENDING_MESSAGES: b"1", message.PENDING_BYTES: b"0"}
    assert message.status(408, b"Request Timeout", pending) == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n"
    )


@pytest.mark.parametrize("text", [b"a\r\nB: 1", b"a\nb", b"a\r"])
def test_line_breaks_cannot_be_written(text: bytes) -> None:
    with pytest.raises(BadHeaderError):
        message.line(b"A", text)
    with pytest.raises(BadHeaderError):
        message.line(text, b"1")
    with pytest.raises(BadHeaderError):
        message.status(404, text)


@pytest.mark.parametrize("name", [b"", b"a b", b"a:b", b"a\x00", b"\x7f"])
def test_names_that_would_not_come_back_are_refused(name: bytes) -> None:
    with pytest.raises(BadHeaderError):
        message.line(name, b"1")


@given(st.dictionaries(names, values, max_size=5))
def test_what_is_built_is_valid_and_comes_back(fields: dict[bytes, bytes]) -> None:
    block = message.build(fields)

    assert dict(message.items(block)) == fields
    assert {name: message.get(block, name) for name in fields} == fields
    assert message.valid_block(block) == bool(fields)


@given(st.dictionaries(names, values, min_size=1, max_size=5), st.data())
def test_strip_leaves_the_other_lines(fields: dict[bytes, bytes], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(fields)))

    left = message.strip(message.build(fields), gone)

    assert dict(message.items(left)) == {name: value for name, value in fields.items() if name != gone}


@given(st.binary(max_size=60) | st.builds(lambda tail: b"NATS/1.0\r\n" + tail, st.binary(max_size=40)))
def test_malformed_blocks_are_read_without_failing(block: bytes) -> None:
    message.get(block, b"A")
    message.strip(block, b"A")
    assert all(isinstance(name, bytes) for name, _ in message.items(block))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0\r\n",
        b"HTTP/1.0\r\n\r\n",
        b"NATS/1.0x\r\n\r\n",
        b"NATS/1.0\r\nA\r\n\r\n",
        b"NATS/1.0\r\n: 1\r\n\r\n",
        b"NATS/1.0\r\nA: 1\nB: 2\r\n\r\n",
    ],
)
def test_blocks_that_are_not_valid(block: bytes) -> None:
    assert not message.valid_block(block)
