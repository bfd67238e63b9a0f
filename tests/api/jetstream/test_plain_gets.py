"""The plain get answers byte for byte what the whole one answers, and leaves what is not plain to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.jetstream.call import Call
from jetraft.api.jetstream.handlers.messages import get_confirmed
from jetraft.api.jetstream.plain_gets import plain_answer
from jetraft.store.model.errors import ApiError
from jetraft.store.model.responses import ResponseType, answer
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream.stream_store import StoredMessage, StreamStore

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

LATEST_NS = (1 << 63) - 1


class Kept:
    """A replica with some messages: its own machine and store."""

    def __init__(self, messages: list[StoredMessage]) -> None:
        self.machine = self.store = self
        self.messages = {message.seq: message for message in messages}
        self.is_damaged = False

    def load(self, seq: int) -> StoredMessage | None:
        if self.is_damaged:
            raise StoreCorrupt("damaged")
        return self.messages.get(seq)

    def last_for(self, subject: bytes) -> int | None:
        return max((seq for seq, message in self.messages.items() if message.subject == subject), default=None)

    def last_match(self, patterns: tuple[bytes, ...]) -> int | None:
        assert patterns
        return max(self.messages, default=None)


def whole_answer(kept: Kept, body: bytes) -> bytes:
    call = Call(account="", names=(), body=body)
    return answer(ResponseType.STREAM_MSG_GET, get_confirmed(cast("StreamReplica", kept), call))


def plain(kept: Kept, body: bytes) -> bytes | None:
    return plain_answer(cast("StreamStore", kept), body)


subjects = st.one_of(
    st.sampled_from([b"a", b"a.b", b"$KV.B.key", b"a b", b'a"b', b"a\\b", b"\x7f", "é".encode(), b"\xff"]),
    st.binary(min_size=1, max_size=6),
)
stored = st.builds(
    StoredMessage,
    seq=st.integers(1, 5),
    ts_ns=st.one_of(st.integers(0, LATEST_NS), st.integers(0, 3).map(lambda second: second * 10**9)),
    subject=subjects,
    hdr=st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    payload=st.binary(max_size=40),
)
bodies = st.one_of(
    st.integers(0, 6).map(lambda seq: b'{"seq":%d}' % seq),
    st.sampled_from(
        [b'{"seq": 1}', b'{"seq":01}', b'{"seq":1} ', b'{"seq":1}{"seq":2}', b'{"Seq":1}', b'{"seq":1.0}', b"{}"]
    ),
    st.sampled_from([b'{"seq":9999999999999999999}', b'{"seq":18446744073709551616}', b'{"seq":1,"no_hdr":true}']),
    st.sampled_from(
        [b'{"last_by_subj":"*"}', b'{"last_by_subj":">"}', b'{"last_by_subj":""}', b'{"last_by_subj": "a.b"}']
    ),
    st.sampled_from(['{"last_by_subj":"é"}'.encode(), b'{"last_by_subj":"a\\u0062"}', b'{"last_by_subj":"\xff"}']),
    subjects.map(lambda subject: b'{"last_by_subj":"%s"}' % subject),
)


@given(st.lists(stored, max_size=5), bodies)
def test_what_is_answered_is_what_the_whole_get_answers(messages: list[StoredMessage], body: bytes) -> None:
    kept = Kept(messages)
    found = plain(kept, body)
    if found is not None:
        assert found == whole_answer(kept, body)


@pytest.mark.parametrize("body", [b'{"seq":1}', b'{"seq": 1}', b'{"last_by_subj":"a.b"}', b'{"last_by_subj": "a.b"}'])
def test_what_clients_send_is_plain(body: bytes) -> None:
    kept = Kept([StoredMessage(seq=1, ts_ns=1, subject=b"a.b", hdr=b"", payload=b"x")])
    assert plain(kept, body) == whole_answer(kept, body)


def test_what_is_not_there_is_left_to_the_whole_get() -> None:
    kept = Kept([])
    assert plain(kept, b'{"seq":1}') is None
    kept.is_damaged = True
    assert plain(kept, b'{"seq":1}') is None
    with pytest.raises(ApiError):
        whole_answer(kept, b'{"seq":1}')
