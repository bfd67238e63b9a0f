"""A batch direct get that is being served. Data only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.streams.gets.column_request import ColumnRequest

NO_LIMIT: Final = 2**62  # of messages or bytes


@attrs.define(eq=False)
class BatchGet:
    """How far it is."""

    reply: bytes
    filters: tuple[bytes, ...]
    next_seq: int
    left: int  # messages that may still be sent
    bytes_left: int  # NO_LIMIT for no limit
    num_pending: int  # after the last message sent
    last_seq: int = 0  # the last message sent
    seqs: Sequence[int] | None = None  # for many last messages: which
    up_to_seq: int = 0  # for many last messages: as of
    client: int = 0  # the connection; 0 for a peer's
    columns: ColumnRequest | None = None  # it is answered in columns
