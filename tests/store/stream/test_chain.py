"""The tree of a chained stream, its proofs, and what its leaves are: compared with RFC 6962's definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.store.frames._frame import make_record, records, seal
from jetraft.store.frames._holes import salvage
from jetraft.store.frames.format import Kind
from jetraft.store.stream._merkle import CHUNK_LEAVES, MerkleTree
from jetraft.store.stream.chain import Chain, Prover, chunks_for, gap_leaf, message_leaf
from jetraft.store.stream.stream_store import StoredMessage
from tests.store.stream import naive_merkle as naive

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE_MAX: Final = 70  # every smaller tree is tried: more than two levels on each side of a power of two
Message = tuple[int, bytes, bytes, bytes]  # sequence, subject, headers, payload


def ts_of(seq: int) -> int:
    return 1_700_000_000_000_000_000 + seq


def frame_of(messages: Sequence[Message], *, summed: bool = False) -> bytes:
    """A frame of messages with sequences in a row."""
    body = b"".join(make_record(subject, hdr, data, ts_ns=ts_of(seq)) for seq, subject, hdr, data in messages)
    first_seq, count = messages[0][0], len(messages)
    return seal(
        Kind.MESSAGES, index=1, term=1, incarnation=1, body=body, count=count, first_seq=first_seq, summed=summed
    )


def plain(first: int, last: int) -> list[Message]:
    return [(seq, b"s.a", b"", b"message %d" % seq) for seq in range(first, last + 1)]


def expected(messages: Sequence[Message]) -> list[bytes]:
    """The leaves, by the definition: a message each, and one for each run of sequences that is missing."""
    found, next_seq = [], 1
    for seq, subject, hdr, data in messages:
        if seq > next_seq:
            found.append(naive.gap(next_seq, seq - 1))
        found.append(naive.message(seq, ts_of(seq), subject, hdr, data))
        next_seq = seq + 1
    return found


def chain_of(messages: Sequence[Message]) -> Chain:
    chain = Chain()
    for message in messages:
        chain.tree.append(frame_of([message]))
    return chain


def leaves_read(chain: Chain, messages: Sequence[Message], ranges: Sequence[tuple[int, int]]) -> dict[int, bytes]:
    """What the server reads for a proof: nothing but the leaves of these ranges."""
    by_seq = {seq: (subject, hdr, data) for seq, subject, hdr, data in messages}
    found = {}
    for low, high in ranges:
        for leaf, first, last in chain.content(low, high):
            if chain.is_gap(leaf):
                found[leaf] = gap_leaf(first, last)
                continue
            for place, seq in enumerate(range(first, last + 1)):
                subject, hdr, data = by_seq[seq]
                message = StoredMessage(seq=seq, ts_ns=ts_of(seq), subject=subject, hdr=hdr, payload=data)
                found[leaf + place] = message_leaf(message)
    return found


def prover(chain: Chain, messages: Sequence[Message], sizes: Sequence[int], leaf: int | None = None) -> Prover:
    return Prover(chain.levels(), leaves_read(chain, messages, chunks_for(sizes, leaf)))


def test_the_empty_tree_is_the_hash_of_nothing() -> None:
    assert Chain().tree.root() == naive.root([])
    assert Prover([], {}).root(0) == naive.root([])


def test_heads_and_proofs_of_all_small_trees_are_those_of_the_definition() -> None:
    messages = plain(1, SIZE_MAX)
    leaves, chain = expected(messages), chain_of(messages)
    for size in range(1, SIZE_MAX + 1):
        assert chain_of(messages[:size]).tree.root() == naive.root(leaves[:size])
        for leaf in range(size):
            assert prover(chain, messages, (size,), leaf).inclusion(leaf, size) == naive.path(leaf, leaves[:size])
        for older in range(1, size):
            found = prover(chain, messages, (older, size)).consistency(older, size)
            assert found == naive.proof(older, leaves[:size])
            assert prover(chain, messages, (older, size)).root(older) == naive.root(leaves[:older])


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 5000), older=st.integers(1, 5000), place=st.integers(0, 4999))
def test_proofs_of_larger_trees_read_two_chunks_at_most(size: int, older: int, place: int) -> None:
    older, place = min(older, size), place % size
    messages = plain(1, size)
    chain = Chain()
    for first in range(0, size, 100):
        chain.tree.append(frame_of(messages[first : first + 100]))
    leaves = expected(messages)
    assert chain.tree.root() == naive.root(leaves)
    assert sum(high - low for low, high in chunks_for((size,), place)) <= 2 * CHUNK_LEAVES
    assert sum(high - low for low, high in chunks_for((older, size))) <= 2 * CHUNK_LEAVES
    found = prover(chain, messages, (size,), place)
    assert found.root(size) == naive.root(leaves)
    assert found.inclusion(place, size) == naive.path(place, leaves)
    if older < size:
        both = prover(chain, messages, (older, size))
        assert both.consistency(older, size) == naive.proof(older, leaves)
        assert both.root(older) == naive.root(leaves[:older])
    restored = Chain.restore(chain.tree.pack())
    assert restored.tree.pack() == chain.tree.pack()
    assert restored.levels() == chain.levels()


texts = st.binary(max_size=20)
steps = st.lists(st.tuples(st.integers(1, 3), texts.filter(bool), texts, texts), min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(steps=steps, cut=st.integers(0, 40))
def test_any_message_and_any_gap_is_a_leaf(steps: list[tuple[int, bytes, bytes, bytes]], cut: int) -> None:
    messages, seq = [], 0
    for step, subject, hdr, data in steps:
        seq += step
        messages.append((seq, subject, hdr, data))
    leaves = expected(messages)
    chain = chain_of(messages[:cut])
    chain = Chain.restore(chain.tree.pack())
    for message in messages[cut:]:
        chain.tree.append(frame_of([message]))
    assert chain.tree.root() == naive.root(leaves)
    assert chain.size == len(leaves)
    for first in range(len(leaves)):
        for last in range(first + 1, len(leaves) + 1):
            read = leaves_read(chain, messages, [(first, last)])
            assert read == {leaf: leaves[leaf] for leaf in range(first, last)}
    for seq, subject, hdr, data in messages:
        leaf = chain.leaf_of(seq)
        assert leaf is not None
        assert leaves[leaf] == naive.message(seq, ts_of(seq), subject, hdr, data)
        assert not chain.is_gap(leaf)
    absent = set(range(seq + 3)) - {message[0] for message in messages}
    assert {seq for seq in absent if chain.leaf_of(seq) is not None} == set()


def test_how_messages_are_cut_into_entries_is_no_part_of_the_head() -> None:
    messages = plain(1, 300)
    at_once = Chain()
    at_once.tree.append(frame_of(messages))
    assert at_once.tree.root() == chain_of(messages).tree.root()


def test_a_hole_is_a_gap_and_another_head() -> None:
    whole = frame_of(plain(1, 5), summed=True)
    damaged = bytearray(whole)
    damaged[48 + 2 * (20 + 3 + 9) + 25] ^= 1  # in the third record
    holed = salvage(bytes(damaged), offset=0, end=len(damaged), incarnation=1, index=1)
    assert holed is not None
    assert [record[2] for record in records(holed)] == [b"s.a", b"s.a", b"", b"s.a", b"s.a"]
    chain = Chain()
    chain.tree.append(holed)
    chain.tree.append(frame_of(plain(6, 6)))
    assert chain.tree.gaps == [(2, 3, 3)]
    assert chain.tree.root() == naive.root(expected([*plain(1, 2), *plain(4, 6)]))
    assert chain.tree.root() != chain_of(plain(1, 6)).tree.root()


def test_a_state_of_the_wrong_size_is_refused() -> None:
    size, next_seq, edge, gaps, chunks = chain_of(plain(1, 7)).tree.pack()
    with pytest.raises(ValueError, match="not the state of a tree"):
        MerkleTree.unpack((size, next_seq, edge[:-32], gaps, chunks))
