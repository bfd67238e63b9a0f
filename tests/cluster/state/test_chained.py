"""The chain in a stream's state: a function of the committed log, in snapshots and in digests."""

from __future__ import annotations

from typing import Any, Final

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.state import commands
from jetraft.cluster.state.digest import SLICE_CONSUMERS
from jetraft.cluster.state.snapshot import encode_config
from jetraft.store.frames._frame import make_record
from jetraft.store.frames.format import Kind
from jetraft.store.frames.placeholder import placeholder_frame
from jetraft.store.port import Entry
from tests.cluster.lab import stream_config
from tests.cluster.state.test_machine import Bench
from tests.store.stream import naive_merkle as naive

CHAIN: Final = {"jetraft.chain": "sha256"}
DIGEST: Final = commands.Digest(1, 1000, "", SLICE_CONSUMERS)


def chained(**fields: Any) -> Bench:
    return Bench(metadata=CHAIN, **fields)


def head(bench: Bench) -> tuple[int, bytes]:
    assert bench.machine.chain is not None
    return bench.machine.chain.size, bench.machine.chain.tree.root()


def leaves(bench: Bench) -> list[bytes]:
    """By the definition, from what a reader of the stream sees."""
    messages = bench.machine.store.load_many(bench.live())
    return [naive.message(one.seq, one.ts_ns, one.subject, one.hdr, one.payload) for one in messages]


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12), cut=st.integers(0, 12))
def test_replicas_have_the_same_head_at_every_way_to_apply_the_log(sizes: list[int], cut: int) -> None:
    bench = chained()
    snapshot, index = bench.machine.snapshot(), bench.log.last_index
    for number, size in enumerate(sizes):
        if number == cut:
            snapshot, index = bench.machine.snapshot(), bench.log.last_index
        bench.messages(*[b"s.a"] * size, hdr=b"NATS/1.0\r\nK: %d\r\n\r\n" % number)
    assert head(bench) == (sum(sizes), naive.root(leaves(bench)))
    entries = bench.log.entries(1, bench.log.last_index, 1 << 30)
    restored = Bench(bench.log)
    restored.machine.restore(snapshot)
    restored.machine.apply(entries[index:])
    assert head(restored) == head(bench)
    assert restored.machine.snapshot() == bench.machine.snapshot()


def test_a_stream_without_the_key_has_no_chain_and_its_snapshot_is_as_it_was() -> None:
    bench = Bench()
    bench.messages(b"s.a")
    assert bench.machine.chain is None
    assert msgpack.unpackb(bench.machine.snapshot(), strict_map_key=False)[0] == 2


def test_a_digest_tells_replicas_with_different_chains_apart() -> None:
    one, other = chained(), chained()
    for bench in (one, other):
        bench.messages(b"s.a", b"s.b")
    other.machine.restore(chained().machine.snapshot())  # bent: a chain that has begun again
    found = [bench.machine.digests[bench.stream_op(DIGEST)].consumers for bench in (one, other)]
    assert found[0] != found[1]


def test_no_limit_drops_a_message_of_a_chained_stream() -> None:
    bench = chained()
    bench.messages(b"s.a", b"s.a", b"s.a")
    bench.stream_op(commands.SetConfig(encode_config(stream_config(metadata=CHAIN, max_msgs=1)), 2))
    bench.messages(b"s.a")
    assert bench.live() == [1, 2, 3, 4]
    assert head(bench)[0] == 4


def test_an_entry_that_is_lost_on_every_member_is_a_gap_in_the_head() -> None:
    bench = chained()
    bench.messages(b"s.a", b"s.b")
    whole = head(bench)
    index = bench.log.last_index + 1
    frame = placeholder_frame(index=index, term=1, incarnation=1)
    entry = Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)
    bench.log.append([entry])
    bench.machine.apply([entry])
    assert head(bench) == whole
    first_seq = bench.machine.store.next_seq
    assert first_seq > 3
    record = make_record(b"s.a", b"", b"data", ts_ns=first_seq * 1000)
    bench.add(Kind.MESSAGES, record, count=1, first_seq=first_seq)
    assert bench.machine.chain is not None
    assert bench.machine.chain.tree.gaps == [(2, 3, first_seq - 1)]
    assert head(bench) == (4, naive.root([*leaves(bench)[:2], naive.gap(3, first_seq - 1), leaves(bench)[2]]))
