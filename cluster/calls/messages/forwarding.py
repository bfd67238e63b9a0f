"""Requests on their way to the node that owns the asset, and its answers.

js.api:   request -> answer        js.relay: [place, request] -> answer of `place`, as it is
answer:   0 and a body | 1 and, if one is known, the node to ask instead | 2: it is not known what came of it
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import Message, flag, member_of, octets, protocol, text
from jetraft.store.model.ids import NodeId
from jetraft.store.model.limits import NAME_BYTES_MAX

METHOD: Final = "js.api"
RELAY: Final = "js.relay"
REQUEST_BYTES_MAX: Final = 64 << 20
RELAY_HEAD_BYTES: Final = 300  # what is around a request that is handed on: a name, and how long both are
SUBJECT_BYTES_MAX: Final = 65_535  # of a capture record; a stream's name was cut out of one


class Owner(enum.Enum):
    """The nodes that may carry out a request."""

    META = "meta"  # the leader of the meta group
    STREAM = "stream"  # the leader of the stream's group
    ANY = "any"  # the node where it entered


@protocol("a forwarded request", bytes_max=REQUEST_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class ForwardedRequest(Message):
    """One request as it entered. `stream` is the stream's name when the owner is the stream's leader.

    Subjects that do not start with `$` are the cluster's own questions, never a client's.
    """

    account: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    owner: Owner = attrs.field(metadata=member_of({owner.value: owner for owner in Owner}))
    stream: str = attrs.field(metadata=text(SUBJECT_BYTES_MAX))
    repeatable: bool = attrs.field(metadata=flag())
    subject: bytes = attrs.field(metadata=octets(SUBJECT_BYTES_MAX))
    hdr: bytes = attrs.field(metadata=octets(REQUEST_BYTES_MAX))
    payload: bytes = attrs.field(metadata=octets(REQUEST_BYTES_MAX))


@protocol("a request to be handed on", bytes_max=REQUEST_BYTES_MAX + RELAY_HEAD_BYTES)
@attrs.frozen(kw_only=True, slots=True)
class RelayedRequest(Message):
    """A packed request, and the node that it is for."""

    place: NodeId = attrs.field(metadata=text(NAME_BYTES_MAX, chars_min=1))
    packed: bytes = attrs.field(metadata=octets(REQUEST_BYTES_MAX))


class ForwardStatus(enum.Enum):
    """The outcome of a forwarded request; the first byte of its answer."""

    DONE = b"\x00"
    MOVED = b"\x01"  # not carried out
    LOST = b"\x02"  # carried out or not


@attrs.frozen(kw_only=True, slots=True)
class ForwardedAnswer:
    """An answer. `body` is of one that is DONE, `hint` of one that is MOVED."""

    status: ForwardStatus
    body: bytes = b""
    hint: NodeId | None = None

    def pack(self) -> bytes:
        """The bytes in which it travels."""
        return self.status.value + (self.hint or "").encode() + self.body

    @classmethod
    def unpack(cls, packed: bytes) -> ForwardedAnswer:
        """The answer of `pack`. Raises RemoteProtocolError. The body is for the client and is not parsed."""
        try:
            status = ForwardStatus(packed[:1])
            if status is ForwardStatus.DONE:
                return cls(status=status, body=packed[1:])
            hint = packed[1:].decode()
        except ValueError as error:
            raise RemoteProtocolError(f"an answer to a forwarded request: {error}") from error
        if len(hint) > (NAME_BYTES_MAX if status is ForwardStatus.MOVED else 0):
            raise RemoteProtocolError(f"an answer to a forwarded request with {len(packed) - 1} bytes too many")
        return cls(status=status, hint=NodeId(hint) if hint else None)
