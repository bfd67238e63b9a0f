"""Which messages reach which sinks: a message has an origin, a sink has a kind, and one table says who reaches what.

A client's publish is judged by its permissions. A message that the server sends on a user's behalf is not: a reply
subject or a configuration names the receiver, and the user who wrote that need not be allowed to publish there. So such
a message reaches subscribers, and of the sinks those that are meant for it: it is no request, no acknowledgement and no
publish. The plane makes a mask for each kind when it starts, and asks it where it captures a message. Pure.
"""

from enum import IntEnum
from typing import Final

# The origin of a captured message that is traced: these bits, and a number below them (api/plane/_tracing.pyx).
TRACED_ORIGIN: Final = 0x8000_0000
TRACED_ONLY: Final = 0x4000_0000
TRACE_NUMBERS: Final = TRACED_ONLY - 1


class MessageOrigin(IntEnum):
    """The sender of a message. The numbers travel between nodes, in four bits: they keep their meaning."""

    CLIENT = 0  # what a client publishes, judged by its permissions
    LEAF = 1  # what a leaf node or a hub sends, judged by those of the connection
    LINK = 2  # what a node sends that does not say more: an older version
    DELIVERY = 3  # a stored message, to the subject that a consumer or a pull names
    ANSWER = 4  # of the server or of an imported service, to a reply subject: acks, gets, statuses, chunks
    REPUBLISH = 5  # a copy of a stored message, to the subject that its stream's configuration names
    ADVISORY = 6  # events, advisories and measurements of this server
    TRACE = 7  # what a traced message asked for: its sender may publish to that subject
    EXTENSION = 8  # a publish that a configuration asks for, checked against who wrote it
    SERVER = 9  # requests of this server's own: it reads a stream elsewhere, answers its flow control


class SinkKind(IntEnum):
    """The purpose for which a receiver in this server takes messages."""

    API = 0  # requests: `$JS.API.>`, gets and pulls included
    STREAM = 1  # what is stored
    ACK = 2  # acknowledgements and answers to flow control
    SYSTEM = 3  # `$SYS.REQ.>`, and what servers say to each other in the system account
    REPLY = 4  # answers to this server's own requests
    DELIVERIES = 5  # what a consumer delivers to a stream that reads it
    SERVICE = 6  # a request that goes on to the account which exports a service


_ALL: Final = frozenset(SinkKind)
_EVENTS: Final = frozenset({SinkKind.STREAM})

REACHES: Final[dict[MessageOrigin, frozenset[SinkKind]]] = {
    MessageOrigin.CLIENT: _ALL,
    MessageOrigin.LEAF: _ALL,
    MessageOrigin.LINK: _ALL,  # it may be a client's: a cluster of two versions goes on to work
    MessageOrigin.DELIVERY: frozenset({SinkKind.DELIVERIES}),
    MessageOrigin.ANSWER: frozenset({SinkKind.REPLY, SinkKind.DELIVERIES}),
    MessageOrigin.REPUBLISH: _EVENTS,
    MessageOrigin.ADVISORY: _EVENTS,
    MessageOrigin.TRACE: frozenset({SinkKind.STREAM, SinkKind.SERVICE}),
    MessageOrigin.EXTENSION: _EVENTS,
    MessageOrigin.SERVER: frozenset({SinkKind.API, SinkKind.ACK, SinkKind.SYSTEM, SinkKind.REPLY, SinkKind.SERVICE}),
}


def admitted_by(kind: SinkKind) -> int:
    """The origins that reach a kind of sink, a bit each."""
    return sum(1 << origin for origin, kinds in REACHES.items() if kind in kinds)
