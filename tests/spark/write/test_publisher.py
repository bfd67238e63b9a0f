"""Acknowledgements: counted many at a time, or read one by one where there is anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream.errors import ServerError, WriteRefusedError
from pyspark_jetstream.wire import Frame
from pyspark_jetstream.write.publisher import RefusedPublishError, count_acks, read_ack

START = b'{"stream":"S",'


def ack(token: int, payload: bytes) -> bytes:
    return b"MSG in.%d 1 %d\r\n%b\r\n" % (token, len(payload), payload)


def positive(token: int, seq: int) -> bytes:
    return ack(token, b'{"stream":"S", "seq":%d}' % seq)


@given(tokens=st.lists(st.sampled_from([1, 2, 11]), max_size=9), lost=st.integers(0, 40), before=st.integers(0, 3))
def test_whole_acks_are_counted_by_token(tokens: list[int], lost: int, before: int) -> None:
    data = b"#" * before + b"".join(positive(token, seq) for seq, token in enumerate(tokens))
    data = data[: max(before, len(data) - lost)]
    found = count_acks(data, before, b"in", [1, 2, 11], START)
    assert found is not None
    end, counts = found
    whole, rest = data[before:end], data[end:]
    assert whole.count(b"\r\n") == 2 * sum(counts.values())
    assert rest.count(b"\r\n") < 2
    expected = tokens[: sum(counts.values())]
    assert counts in ({token: expected.count(token) for token in (1, 2, 11)}, {})


@pytest.mark.parametrize(
    "other",
    [
        ack(1, b'{"error":{"code":503,"err_code":10077,"description":"x"},"stream":"S","seq":0}'),
        ack(1, b'{"stream":"OTHER", "seq":1}'),
        ack(3, b'{"stream":"S", "seq":1}'),
        b"PING\r\n",
        b"PING\r\nPING\r\n",
        b"HMSG in.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"-ERR 'x'\r\n",
    ],
)
def test_anything_else_among_them_is_not_counted(other: bytes) -> None:
    acks = positive(1, 1) + positive(2, 2)
    for data in (other + acks, acks + other, acks + other + acks):
        found = count_acks(data, 0, b"in", [1, 2], START)
        if found is not None:
            taken = data[: found[0]]
            assert taken.count(b"MSG ") == taken.count(START) == sum(found[1].values())


def test_a_reply_is_an_ack_a_refusal_or_a_reason_to_try_again() -> None:
    def read(payload: bytes, header: bytes = b"") -> object:
        return read_ack(Frame(verb=b"MSG", header=header, payload=payload), "S")

    assert str(read(b'{"stream":"S", "seq":4,"duplicate": true}')) == "Ack(seq=4, count=1)"
    assert str(read(b'{"stream":"S","seq":4,"batch":"x","count":3}')) == "Ack(seq=4, count=3)"
    for transient in (b'{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}', b"", b"[]"):
        with pytest.raises(ServerError):
            read(transient)
    with pytest.raises(ServerError, match="503 no responders"):
        read(b"", b"NATS/1.0 503\r\n\r\n")
    with pytest.raises(WriteRefusedError, match="belongs to stream 'OTHER'"):
        read(b'{"stream":"OTHER","seq":1}')
    with pytest.raises(RefusedPublishError, match=r"message size exceeds maximum allowed \(err_code 10054\)"):
        read(b'{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}')
