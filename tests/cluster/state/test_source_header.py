"""Positions of sources: read from the headers of what is stored, kept over restarts, equal on all replicas."""

import pytest

from jetraft.cluster.state import commands
from jetraft.cluster.state.digest import digests_of
from jetraft.cluster.state.source_header import SourcePosition, header_value, key_of, position_in
from jetraft.store.frames.format import RECORD_IS_SOURCED
from jetraft.store.model import message
from jetraft.store.model.config import ExternalStream, StreamSource, SubjectTransform
from tests.cluster.state.test_machine import Bench

PLAIN = StreamSource(name="O")
FILTERED = StreamSource(name="O", filter_subject="a.*")
TRANSFORMS = (SubjectTransform(src="a.*", dest="q.{{wildcard(1)}}"), SubjectTransform(src="c", dest=""))
MAPPED = StreamSource(name="O", subject_transforms=TRANSFORMS)
ELSEWHERE = StreamSource(name="O", external=ExternalStream(api="$JS.hub.API", deliver=""))
SLICE = commands.Digest(1, 0, "", 100)


def sourced(source: StreamSource, seq: int, identity: bytes = b"XByrZds7") -> bytes:
    return message.append(b"", message.STREAM_SOURCE, header_value(source, seq, b"a.1", identity))


@pytest.mark.parametrize("source", [PLAIN, FILTERED, MAPPED, ELSEWHERE])
def test_the_position_is_read_back_from_the_header(source: StreamSource) -> None:
    assert position_in(sourced(source, 7)) == (key_of(source), SourcePosition(7, b"XByrZds7"))
    assert position_in(sourced(source, 7, b"")) == (key_of(source), SourcePosition(7, b""))


def test_the_header_is_that_of_nats_server() -> None:
    assert header_value(PLAIN, 1, b"a.0", b"6BehippZ") == b"O 1 > > a.0 6BehippZ"
    assert header_value(FILTERED, 2, b"a.1", b"6BehippZ") == b"O 2 a.* > a.1 6BehippZ"


def test_sources_that_differ_in_anything_have_positions_of_their_own() -> None:
    assert len({key_of(source) for source in (PLAIN, FILTERED, MAPPED, ELSEWHERE)}) == 4


@pytest.mark.parametrize("value", [b"", b"O", b"O x > >", b"O 1 >"])
def test_a_header_without_a_position_tells_none(value: bytes) -> None:
    assert position_in(message.append(b"", message.STREAM_SOURCE, value)) is None


def bench_with_positions() -> Bench:
    bench = Bench()
    bench.messages(b"s.a", hdr=sourced(PLAIN, 4), flags=RECORD_IS_SOURCED)
    bench.messages(b"s.a", hdr=sourced(PLAIN, 6), flags=RECORD_IS_SOURCED)
    bench.stream_op(commands.NoteSource(key_of(FILTERED), 9, b"z"))
    return bench


def test_applying_notes_the_position_with_the_message_and_removing_it_changes_nothing() -> None:
    bench = bench_with_positions()
    bench.stream_op(commands.Purge(None, None, None))
    assert bench.machine.sources == {
        key_of(PLAIN): SourcePosition(6, b"XByrZds7"),
        key_of(FILTERED): SourcePosition(9, b"z"),
    }


def test_positions_are_in_the_snapshot_and_in_the_digest() -> None:
    bench, other = bench_with_positions(), Bench()
    restored = Bench(bench.log)
    restored.machine.restore(bench.machine.snapshot())
    assert restored.machine.sources == bench.machine.sources
    assert digests_of(restored.machine, SLICE) == digests_of(bench.machine, SLICE)
    assert digests_of(other.machine, SLICE).consumers != digests_of(bench.machine, SLICE).consumers


def test_a_message_that_only_looks_like_a_copy_notes_nothing() -> None:
    """That of a mirror of a stream with sources: its headers are its origin's."""
    bench = Bench()
    bench.messages(b"s.a", hdr=sourced(PLAIN, 4))
    assert bench.machine.sources == {}


def test_a_number_that_is_none_is_no_position() -> None:
    for number in (b"x", b"-1", b"9" * 5000):
        assert position_in(b"NATS/1.0\r\nNats-Stream-Source: O %s > > a\r\n\r\n" % number) is None
