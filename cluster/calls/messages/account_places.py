"""accounts.places: how many clients and leaf nodes of accounts a node has, for limits that hold for the cluster.

Of 0.2.0: a node that does not know the call answers with an error, and is then not told.
"""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.messages import Message, list_of, message_of, number, protocol, text
from jetraft.store.model.limits import NAME_BYTES_MAX

METHOD: Final = "accounts.places"
ACCOUNTS_MAX: Final = 256  # of one message
BYTES_MAX: Final = ACCOUNTS_MAX * (NAME_BYTES_MAX + 24) + 64
COUNT_MAX: Final = 1 << 31


@protocol("what a node has of an account", bytes_max=NAME_BYTES_MAX + 24)
@attrs.frozen(kw_only=True, slots=True)
class PlacesTaken(Message):
    """An account's clients and leaf nodes at the node that says so."""

    account: str = attrs.field(metadata=text(NAME_BYTES_MAX, chars_min=1))
    clients: int = attrs.field(metadata=number(0, COUNT_MAX))
    leafs: int = attrs.field(metadata=number(0, COUNT_MAX))


@protocol("what a node has of accounts", bytes_max=BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class AccountPlaces(Message):
    """The accounts of which a node has another number now. All that was said of the others still holds."""

    accounts: tuple[PlacesTaken, ...] = attrs.field(metadata=list_of(message_of(PlacesTaken), ACCOUNTS_MAX))
