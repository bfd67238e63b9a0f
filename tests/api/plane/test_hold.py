"""A connection whose CONNECT is being judged: what follows waits, whole and in order, or is never acted on."""

from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import ConnectOptions

ADMITTED = ConnectOptions(verbose=False, pedantic=False, headers=True)
PENDING = ConnectOptions(is_pending=True)
REFUSED = ConnectOptions(error=b"-ERR 'Authorization Violation'\r\n", close_reason=Reason.AUTHENTICATION_FAILURE)
TEXT = b"CONNECT {}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\nPUB a 5\r\nhello\r\n"
ANSWER = b"MSG a 1 2\r\nhi\r\nPONG\r\nMSG a 1 5\r\nhello\r\n"


def make_plane() -> Plane:
    return Plane(
        max_payload=1 << 20,
        max_control_line=4096,
        max_pending=64 << 20,
        max_subscriptions=0,
        connect_handler=lambda _cid, _text: PENDING,
        first_ping_handler=lambda _cid: b"",
        violation_handler=lambda _cid, _kind, _subject, _queue, _sid: b"",
    )


def pieces(cuts: list[int], text: bytes = TEXT) -> list[bytes]:
    ends = [*sorted(cuts), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


@given(st.lists(st.integers(0, len(TEXT)), max_size=6), st.integers(0, 7))
def test_bytes_cut_anywhere_are_acted_on_once_the_connection_is_released(cuts: list[int], after: int) -> None:
    plane = make_plane()
    cid = plane.open(-1, b"", auth_required=True)
    released = False
    for number, piece in enumerate(pieces(cuts)):
        if number == after:
            released = plane.release(cid, ADMITTED)
        plane.feed(cid, piece)
        assert released or plane.take(cid) == b""
    if not released:
        assert plane.release(cid, ADMITTED)
    assert plane.take(cid) == ANSWER


@given(st.lists(st.integers(0, len(TEXT)), max_size=6))
def test_nothing_that_follows_a_refused_connect_is_acted_on(cuts: list[int]) -> None:
    plane = make_plane()
    captured: list[bytes] = []
    plane.add_sink(plane.account("$G"), b">", captured.append)
    cid = plane.open(-1, b"", auth_required=True)
    for piece in pieces(cuts):
        plane.feed(cid, piece)
    assert plane.release(cid, REFUSED)
    assert plane.take(cid) == REFUSED.error
    plane.run_sinks()
    assert captured == []
    assert [row[:2] for row in plane.flush()] == [(cid, Reason.AUTHENTICATION_FAILURE)]


def test_a_connection_that_has_gone_is_not_released() -> None:
    plane = make_plane()
    cid = plane.open(-1, b"", auth_required=True)
    plane.feed(cid, TEXT)
    plane.close(cid, Reason.CLIENT_CLOSED)
    assert not plane.release(cid, ADMITTED)
    plane.flush()
    assert not plane.release(cid, ADMITTED)
    assert plane.statistics()["subscriptions"] == 0


def test_what_waits_for_a_connection_that_is_held_is_bounded() -> None:
    plane = make_plane()
    cid = plane.open(-1, b"", auth_required=True)
    plane.feed(cid, TEXT)
    for _ in range(64):
        plane.feed(cid, b"x" * (1 << 16))
    assert [row[:2] for row in plane.flush()] == [(cid, Reason.MAXIMUM_CONTROL_LINE_EXCEEDED)]


def test_a_second_connect_is_held_too() -> None:
    plane = make_plane()
    cid = plane.open(-1, b"", auth_required=True)
    plane.feed(cid, b"CONNECT {}\r\nPING\r\nCONNECT {}\r\nPING\r\n")
    assert plane.release(cid, ADMITTED)
    assert plane.take(cid) == b"PONG\r\n"
    assert plane.release(cid, ADMITTED)
    assert plane.take(cid) == b"PONG\r\n"
    assert not plane.release(cid, ADMITTED)
