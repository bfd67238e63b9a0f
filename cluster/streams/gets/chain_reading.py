"""Heads and proofs of a chained stream, as its leader answers them.

A proof begins with stored messages, which are read again: 2,048 at most. Between slices of SLICE_BYTES the turn goes
on; what was applied stays as it is, so nothing has to be locked. The messages that were read have to give the head that
the replicated state says: where it does not, messages were changed below this server, and the answer is an error that
says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.store.model import errors
from jetraft.store.model.api_error import ApiError
from jetraft.store.model.extensions import CHAIN
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream._merkle import CHUNK_LEAVES
from jetraft.store.stream.chain import Chain, Prover, chunks_for, gap_leaf, message_leaf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.store.model.state import StreamState
    from jetraft.store.stream.stream_store import StreamStore

SLICE_BYTES: Final = 256 << 10  # read and hashed in one turn: under a millisecond
MESSAGE_BYTES: Final = 256  # what a message of no bytes takes beside them


@attrs.frozen(kw_only=True, slots=True)
class Inclusion:
    """That a message is in a head."""

    leaf_index: int  # from 0
    leaf: bytes
    head: bytes
    path: Sequence[bytes]  # from the bottom


@attrs.frozen(kw_only=True, slots=True)
class Consistency:
    """That one head is the beginning of another."""

    older_head: bytes
    head: bytes
    path: Sequence[bytes]


def read_chain(machine: StreamMachine, size: int) -> ChainReading:
    """The chain with so many leaves, 0: all. Raises ApiError 10003 where there is none."""
    chain = machine.chain
    if chain is None:
        raise _refused(f"the stream has no chain: it was created without {CHAIN}")
    if size > chain.size:
        raise _refused(f"the chain has {chain.size} leaves, not {size}")
    return ChainReading(chain, machine.store, size or chain.size, machine.store.state)


class ChainReading:
    """Questions about one chain at one size. Methods raise ApiError: 10003, 10037 or 10051."""

    def __init__(self, chain: Chain, store: StreamStore, size: int, state: StreamState) -> None:
        self._chain = chain
        self._store = store
        self._present = chain.tree.root() if size == chain.size else None
        self.size = size
        self.state = state  # of the stream, when it was asked
        self.gaps = sum(leaf < size for leaf, _, _ in chain.tree.gaps)

    async def head(self) -> bytes:
        """The head; nothing is read for the present one."""
        return self._present or self._checked(await self._prover((self.size,)))

    async def proof(self, seq: int) -> Inclusion:
        """That a message is in the head."""
        leaf = self._chain.leaf_of(seq)
        if leaf is None or leaf >= self.size:
            raise errors.NO_MESSAGE_FOUND.with_values()
        prover = await self._prover((self.size,), leaf)
        path = prover.inclusion(leaf, self.size)
        return Inclusion(leaf_index=leaf, leaf=prover.of_leaves(leaf, leaf + 1), head=self._checked(prover), path=path)

    async def consistency(self, older: int) -> Consistency:
        """That the head of `older` leaves is the beginning of this one."""
        if older > self.size:
            raise _refused(f"from is {older}, and to is {self.size}")
        prover = await self._prover((older, self.size))
        path = prover.consistency(older, self.size)
        return Consistency(older_head=prover.root(older), head=self._checked(prover), path=path)

    async def _prover(self, sizes: Sequence[int], leaf: int | None = None) -> Prover:
        ranges = chunks_for(sizes, leaf)
        prover = Prover(self._chain.levels(), await self._hashes(ranges))
        for low, high in ranges:
            if high - low == CHUNK_LEAVES and prover.of_leaves(low, high) != prover.chunk(low):
                raise _changed()
        return prover

    def _checked(self, prover: Prover) -> bytes:
        head = prover.root(self.size)
        if self._present is not None and head != self._present:
            raise _changed()
        return head

    async def _hashes(self, ranges: Sequence[tuple[int, int]]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        taken = 0
        for low, high in ranges:
            for leaf, first, last in list(self._chain.content(low, high)):
                if self._chain.is_gap(leaf):
                    found[leaf] = gap_leaf(first, last)
                    continue
                for place, seq in enumerate(range(first, last + 1)):
                    found[leaf + place], size = self._message(seq)
                    taken += size
                    if taken >= SLICE_BYTES:
                        taken = 0
                        await trio.lowlevel.checkpoint()
        return found

    def _message(self, seq: int) -> tuple[bytes, int]:
        try:
            message = self._store.load(seq)
        except StoreCorrupt as error:
            raise errors.STREAM_GENERAL_ERROR.with_values(err=str(error)) from error
        if message is None:
            reason = f"message {seq} is in the head of the chain, and not in the stream"
            raise errors.STREAM_GENERAL_ERROR.with_values(err=reason)
        return message_leaf(message), MESSAGE_BYTES + len(message.hdr) + len(message.payload)


def _changed() -> ApiError:
    return errors.STREAM_GENERAL_ERROR.with_values(err="the stored messages do not give the head of the chain")


def _refused(reason: str) -> ApiError:
    spec = errors.BAD_REQUEST.with_values()
    return ApiError(code=spec.code, err_code=spec.err_code, description=reason)
