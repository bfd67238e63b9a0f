"""The operations of the JetStream API: subject, type of the answer, owner, handler.

A request on a subject that is not in the list gets no answer, as in nats-server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.calls.messages.forwarding import Owner
from jetraft.store.model.responses import ResponseType

if TYPE_CHECKING:
    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService

PREFIX: Final = b"$JS.API."
OF_2020: Final = b"STREAM.TEMPLATE."  # answered only where `legacy_api` is on
Handler = Callable[["ClusterService", "Call"], Awaitable[Mapping[str, object] | None]]  # None: there is no answer


@attrs.frozen(slots=True)
class Operation:
    """One operation. If `repeatable`, a request may be executed again when its answer was lost.

    `handler` is the name of a module in handlers/ and of its function (`handler_of`).
    """

    pattern: bytes
    kind: ResponseType
    owner: Owner
    handler: str
    repeatable: bool = False


@cache
def handler_of(name: str) -> Handler:
    """The function of a name; its module is loaded when the server is ready (api/startup/late_imports.py), or now."""
    module, _, function = name.partition(".")
    found: Handler = getattr(import_module(f"{__package__}.handlers.{module}"), function)
    return found


_R = ResponseType
_REPEATABLE: Final = True

OPERATIONS: Final = (
    Operation(b"INFO", _R.ACCOUNT_INFO, Owner.META, "account.info", _REPEATABLE),
    Operation(b"STREAM.CREATE.*", _R.STREAM_CREATE, Owner.META, "streams.create", _REPEATABLE),
    Operation(b"STREAM.UPDATE.*", _R.STREAM_UPDATE, Owner.META, "streams.update", _REPEATABLE),
    Operation(b"STREAM.DELETE.*", _R.STREAM_DELETE, Owner.META, "streams.delete"),
    Operation(b"STREAM.NAMES", _R.STREAM_NAMES, Owner.META, "streams.names", _REPEATABLE),
    Operation(b"STREAM.LIST", _R.STREAM_LIST, Owner.META, "streams.list_", _REPEATABLE),
    Operation(b"STREAM.INFO.*", _R.STREAM_INFO, Owner.STREAM, "streams.info", _REPEATABLE),
    Operation(b"STREAM.PURGE.*", _R.STREAM_PURGE, Owner.STREAM, "streams.purge"),
    Operation(b"STREAM.MSG.GET.*", _R.STREAM_MSG_GET, Owner.STREAM, "messages.get", _REPEATABLE),
    Operation(b"STREAM.MSG.DELETE.*", _R.STREAM_MSG_DELETE, Owner.STREAM, "messages.delete"),
    Operation(b"CONSUMER.CREATE.*", _R.CONSUMER_CREATE, Owner.STREAM, "consumers.create_ephemeral"),
    Operation(b"CONSUMER.CREATE.*.*", _R.CONSUMER_CREATE, Owner.STREAM, "consumers.create_named"),
    Operation(b"CONSUMER.CREATE.*.*.>", _R.CONSUMER_CREATE, Owner.STREAM, "consumers.create_named"),
    Operation(b"CONSUMER.DURABLE.CREATE.*.*", _R.CONSUMER_CREATE, Owner.STREAM, "consumers.create_durable"),
    Operation(b"CONSUMER.NAMES.*", _R.CONSUMER_NAMES, Owner.STREAM, "consumers.names", _REPEATABLE),
    Operation(b"CONSUMER.LIST.*", _R.CONSUMER_LIST, Owner.STREAM, "consumers.list_", _REPEATABLE),
    Operation(b"CONSUMER.INFO.*.*", _R.CONSUMER_INFO, Owner.STREAM, "consumers.info", _REPEATABLE),
    Operation(b"CONSUMER.DELETE.*.*", _R.CONSUMER_DELETE, Owner.STREAM, "consumers.delete"),
    Operation(b"CONSUMER.PAUSE.*.*", _R.CONSUMER_PAUSE, Owner.STREAM, "consumers.pause"),
    Operation(b"CONSUMER.UNPIN.*.*", _R.CONSUMER_UNPIN, Owner.STREAM, "consumers.unpin"),
    Operation(b"CONSUMER.RESET.*.*", _R.CONSUMER_RESET, Owner.STREAM, "consumers.reset"),
    Operation(b"CONSUMER.PEER.REMOVE.*.*", _R.CONSUMER_REMOVE_PEER, Owner.STREAM, "moves.remove_consumer_peer"),
    Operation(b"CONSUMER.PEER.EVACUATE.*.*", _R.CONSUMER_EVACUATE_PEER, Owner.STREAM, "moves.evacuate_consumer_peer"),
    Operation(b"STREAM.LEADER.STEPDOWN.*", _R.STREAM_LEADER_STEPDOWN, Owner.STREAM, "leaders.stream_stepdown"),
    Operation(b"CONSUMER.LEADER.STEPDOWN.*.*", _R.CONSUMER_LEADER_STEPDOWN, Owner.STREAM, "leaders.consumer_stepdown"),
    Operation(b"META.LEADER.STEPDOWN", _R.META_LEADER_STEPDOWN, Owner.META, "leaders.meta_stepdown"),
    Operation(b"SERVER.REMOVE", _R.META_SERVER_REMOVE, Owner.META, "members.remove_server", _REPEATABLE),
    Operation(b"STREAM.PEER.REMOVE.*", _R.STREAM_REMOVE_PEER, Owner.META, "members.remove_stream_peer"),
    Operation(b"STREAM.PEER.EVACUATE.*", _R.STREAM_EVACUATE_PEER, Owner.META, "moves.evacuate_stream_peer"),
    Operation(b"STREAM.CANCEL_MOVE.*", _R.STREAM_CANCEL_MOVE, Owner.META, "moves.cancel"),
    Operation(b"ACCOUNT.PURGE.*", _R.ACCOUNT_PURGE, Owner.META, "account.purge", _REPEATABLE),
    Operation(b"ACCOUNT.STREAM.MOVE.*.*", _R.STREAM_UPDATE, Owner.META, "moves.move"),
    Operation(b"ACCOUNT.STREAM.CANCEL_MOVE.*.*", _R.STREAM_CANCEL_MOVE, Owner.META, "moves.cancel_of_account"),
    Operation(b"STREAM.TEMPLATE.CREATE.*", _R.STREAM_TEMPLATE_CREATE, Owner.META, "templates.create"),
    Operation(b"STREAM.TEMPLATE.NAMES", _R.STREAM_TEMPLATE_NAMES, Owner.META, "templates.names", _REPEATABLE),
    Operation(b"STREAM.TEMPLATE.INFO.*", _R.STREAM_TEMPLATE_INFO, Owner.META, "templates.info", _REPEATABLE),
    Operation(b"STREAM.TEMPLATE.DELETE.*", _R.STREAM_TEMPLATE_DELETE, Owner.META, "templates.delete"),
    Operation(b"STREAM.SNAPSHOT.*", _R.STREAM_SNAPSHOT, Owner.STREAM, "backups.snapshot"),
    Operation(b"STREAM.RESTORE.*", _R.STREAM_RESTORE, Owner.ANY, "backups.restore"),
    Operation(b"JETRAFT.CHAIN.HEAD.*", _R.CHAIN_HEAD, Owner.STREAM, "chains.head", _REPEATABLE),
    Operation(b"JETRAFT.CHAIN.PROOF.*", _R.CHAIN_PROOF, Owner.STREAM, "chains.proof", _REPEATABLE),
    Operation(b"JETRAFT.CHAIN.CONSISTENCY.*", _R.CHAIN_CONSISTENCY, Owner.STREAM, "chains.consistency", _REPEATABLE),
)


# The subjects that every node captures. CONSUMER.MSG.NEXT and DIRECT.GET are captured by the replicas that serve them
# and must have no other receiver: a request to a consumer that does not exist has to get "no responders". The subjects
# do not overlap. They are in the order in which pipelined requests of one turn are executed: streams before consumers.
CAPTURED: Final = (
    *(PREFIX + family for family in (b"*", b"STREAM.>", b"META.>", b"SERVER.>", b"ACCOUNT.>")),
    *(PREFIX + row.pattern for row in OPERATIONS if row.pattern.startswith((b"CONSUMER.", b"JETRAFT."))),
)


SUBJECTS_KEPT: Final = 256  # which clients ask again and again; of subjects of 4 KiB they take a megabyte


@attrs.frozen(slots=True)
class Found:
    """An operation, and the tokens of the subject at the wildcards of its pattern (`>` gives the rest as one)."""

    operation: Operation
    names: tuple[str, ...]


@lru_cache(SUBJECTS_KEPT)
def find(subject: bytes) -> Found | None:
    """Return the operation for a request subject; None when it is not in the list."""
    if not subject.startswith(PREFIX):
        return None
    tokens = subject[len(PREFIX) :].split(b".")
    for length in range(min(len(tokens), _LITERALS_MAX), 0, -1):
        for operation, wildcards in _BY_LITERALS.get(tuple(tokens[:length]), ()):
            rest = tokens[length:]
            if wildcards and wildcards[-1] == b">" and len(rest) > len(wildcards):
                rest = [*rest[: len(wildcards) - 1], b".".join(rest[len(wildcards) - 1 :])]
            if len(rest) == len(wildcards):
                return Found(operation, tuple(token.decode(errors="replace") for token in rest))
    return None


def _index() -> dict[tuple[bytes, ...], list[tuple[Operation, list[bytes]]]]:
    rows: dict[tuple[bytes, ...], list[tuple[Operation, list[bytes]]]] = {}
    for operation in OPERATIONS:
        tokens = operation.pattern.split(b".")
        literals = tuple(token for token in tokens if token not in (b"*", b">"))
        assert tokens[: len(literals)] == list(literals), "wildcards are at the end"
        rows.setdefault(literals, []).append((operation, tokens[len(literals) :]))
    return rows


_BY_LITERALS: Final = _index()
_LITERALS_MAX: Final = max(map(len, _BY_LITERALS))
