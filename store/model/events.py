"""The events of the log: one row for each kind of event, with its level, its text, its fields and its limit.

An event is one line. Its text names the subject, what was expected and what was found; its fields are the same as
values, for `log_format: logfmt` and `json`. Events go through the standard `logging`, so that every layer can write
them; the server's handler (api/logs/logger.py) counts them, bounds the lines of each kind, and gives them their form.
No field has a password, a token, a seed or a payload. docs/logs.md is made from this table (tools/gen_logs.py).
"""

from __future__ import annotations

import logging
import re
from string import Formatter
from typing import Final

import attrs

logger = logging.getLogger("jetraft.events")

BURST: Final = 50  # lines of a kind at once: what still reads well
PER_HOUR: Final = 30  # lines of a kind in the long run: all kinds of a busy cluster stay below 10 MB a day
INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
FREE_TEXT: Final = frozenset({"user"})  # fields that a client may fill with anything; in the text they are quoted
PLAIN: Final = re.compile(r"[A-Za-z0-9_.@:$/+-]+")
ENTRIES_SHOWN: Final = 20

Field = str | int | float


@attrs.frozen(kw_only=True, slots=True, eq=False)
class EventKind:
    """One kind of event. `more` are fields that the text does not have, `only_text` those that it alone has."""

    name: str
    level: int
    text: str
    about: str
    more: tuple[str, ...] = ()
    only_text: tuple[str, ...] = ()
    burst: int = BURST
    per_hour: int = PER_HOUR

    def log(self, **fields: Field) -> None:
        """Write the event, with all fields of its kind (tests/packaging/test_events.py compares)."""
        if logger.isEnabledFor(self.level):
            logger.log(self.level, Event(self, fields))

    @property
    def fields(self) -> tuple[str, ...]:
        """Their names: those of the text in its order, then the others."""
        return (*dict.fromkeys(name for _, name, _, _ in Formatter().parse(self.text) if name), *self.more)


@attrs.frozen(slots=True, eq=False)
class Event:
    """One event, as the message of a log record; its text is made when it is written."""

    kind: EventKind
    fields: dict[str, Field]

    def __str__(self) -> str:
        return self.told(self.fields)

    def told(self, fields: dict[str, Field]) -> str:
        """The text with these fields."""
        return self.kind.text.format_map({name: _shown(name, value) for name, value in fields.items()})


def listed(items: list[int] | tuple[int, ...]) -> str:
    """Entries for a line: the first of them, and how many there are besides."""
    shown = ", ".join(map(str, items[:ENTRIES_SHOWN]))
    return f"{shown} and {len(items) - ENTRIES_SHOWN} more" if len(items) > ENTRIES_SHOWN else shown


def _shown(name: str, value: Field) -> Field:
    if name not in FREE_TEXT or PLAIN.fullmatch(str(value)):
        return value
    return repr(str(value))


# --- clients

CLIENT_REFUSED: Final = EventKind(
    name="client_refused",
    level=ERROR,
    text="{client} - authentication error{named}: {reason}",
    more=("user", "address"),
    only_text=("named",),
    about="A client, or a server as a leaf node, may not log in.",
    burst=200,
    per_hour=240,
)
CONNECTION_REFUSED: Final = EventKind(
    name="connection_refused",
    level=ERROR,
    text="{client} - {reason}",
    about="A connection is closed before a login: there are too many, or it does not speak the protocol.",
    per_hour=60,
)
CONNECTIONS_WAIT: Final = EventKind(
    name="connections_wait",
    level=WARNING,
    text="{address} - {count} connections are not logged in, the next ones wait",
    about="An address has more connections that are not logged in than `max_unauthenticated_per_address`.",
)
PERMISSION_DENIED: Final = EventKind(
    name="permission_denied",
    level=ERROR,
    text="{client} - {violation}",
    about="A client publishes or subscribes to a subject that its permissions do not have.",
    per_hour=60,
)
SLOW_CONSUMER: Final = EventKind(
    name="slow_consumer",
    level=WARNING,
    text="{client} - {reason}: closed; {count} slow consumers since the start",
    about="A connection is closed because it reads too slowly.",
    burst=20,
    per_hour=60,
)
READ_ERROR: Final = EventKind(
    name="read_error",
    level=ERROR,
    text="{client} - read error: {error}",
    about="A WebSocket connection is closed because a compressed message of it cannot be read.",
)
API_OVERLOADED: Final = EventKind(
    name="api_overloaded",
    level=WARNING,
    text="JetStream API queue limit reached, {refused} requests refused, {waiting} wait",
    about="Requests to the JetStream API are refused, because too many wait.",
)

# --- streams and consumers

_BY = " by user {user} from {host}"
_OBJECT: Final = 60  # lines an hour

STREAM_CREATED: Final = EventKind(
    name="stream_created",
    level=INFO,
    text="stream {account} > {stream}: created" + _BY,
    about="A request has created a stream. Written by the server that carried the request out.",
    per_hour=_OBJECT,
)
STREAM_CHANGED: Final = EventKind(
    name="stream_changed",
    level=INFO,
    text="stream {account} > {stream}: configuration changed" + _BY,
    about="A request has changed the configuration of a stream.",
    per_hour=_OBJECT,
)
STREAM_DELETED: Final = EventKind(
    name="stream_deleted",
    level=INFO,
    text="stream {account} > {stream}: deleted" + _BY,
    about="A request has deleted a stream.",
    per_hour=_OBJECT,
)
CONSUMER_CREATED: Final = EventKind(
    name="consumer_created",
    level=INFO,
    text="consumer {account} > {stream} > {consumer}: created" + _BY,
    about="A request has created a consumer. Written by the leader of the stream.",
    per_hour=_OBJECT,
)
CONSUMER_CHANGED: Final = EventKind(
    name="consumer_changed",
    level=INFO,
    text="consumer {account} > {stream} > {consumer}: configuration changed" + _BY,
    about="A request has changed the configuration of a consumer.",
    per_hour=_OBJECT,
)
CONSUMER_DELETED: Final = EventKind(
    name="consumer_deleted",
    level=INFO,
    text="consumer {account} > {stream} > {consumer}: deleted" + _BY,
    about="A request has deleted a consumer.",
    per_hour=_OBJECT,
)
CONSUMER_EXPIRED: Final = EventKind(
    name="consumer_expired",
    level=INFO,
    text="consumer {account} > {stream} > {consumer}: deleted after its inactive threshold",
    about="A consumer was not used for its `inactive_threshold`.",
    per_hour=_OBJECT,
)

# --- leaders

META_LEADER: Final = EventKind(
    name="meta_leader",
    level=INFO,
    text="the meta group: {leader} leads in term {term}",
    about="A server leads the meta group. Written by every server.",
)
META_LEADER_LOST: Final = EventKind(
    name="meta_leader_lost",
    level=WARNING,
    text="the meta group has no leader in term {term}: streams cannot be created or changed",
    about="This server knows no leader of the meta group.",
)
STREAM_LEADER: Final = EventKind(
    name="stream_leader",
    level=INFO,
    text="stream {account} > {stream}: {node} leads in term {term}",
    about="This server begins to lead a stream with several replicas.",
)
STREAM_LEADER_ENDED: Final = EventKind(
    name="stream_leader_ended",
    level=INFO,
    text="stream {account} > {stream}: {node} leads no longer in term {term}: {reason}",
    about="This server leads a stream no longer, because another replica does or is being elected.",
)
STREAM_LEADER_LOST: Final = EventKind(
    name="stream_leader_lost",
    level=WARNING,
    text="stream {account} > {stream}: {node} leads no longer in term {term}: {reason}",
    about="This server led a stream, and no other replica is known to lead it.",
)
LEADER_HANDED_OVER: Final = EventKind(
    name="leader_handed_over",
    level=INFO,
    text="{group}: handing leadership over to {node}, as this server is to leave the group",
    about="A leader transfers its leadership before it leaves the group.",
)

# --- replicas

REPLICA_BEHIND: Final = EventKind(
    name="replica_behind",
    level=INFO,
    text="{group}: this replica is {entries} entries behind {node}; requesting a snapshot",
    about="A replica lacks entries that the leader's log no longer has.",
)
REPLICA_CAUGHT_UP: Final = EventKind(
    name="replica_caught_up",
    level=INFO,
    text="{group} has caught up to {index} from {node}",
    about="The snapshot is complete; the replica takes the entries after it.",
)
REPLICA_CATCHUP_FAILED: Final = EventKind(
    name="replica_catchup_failed",
    level=WARNING,
    text="{group}: fetching a snapshot from {node} failed: {error}",
    about="The snapshot cannot be used; the replica requests another one.",
)
REPLICA_FAILED: Final = EventKind(
    name="replica_failed",
    level=WARNING,
    text="{group}: {error}; its log is opened again",
    about="A replica stopped because of an error of its disk, of damage or of a difference, and is repaired.",
)
REPLICA_RESUMED: Final = EventKind(
    name="replica_resumed",
    level=WARNING,
    text="{group}: takes part again",
    about="The replica that had stopped is repaired.",
)
ENTRIES_DAMAGED: Final = EventKind(
    name="entries_damaged",
    level=WARNING,
    text="{group}: entries {first} to {last} are damaged",
    about="Entries of a log do not have the checksum that was written with them.",
)
ENTRIES_REPAIRED: Final = EventKind(
    name="entries_repaired",
    level=INFO,
    text="{group}: damaged entries are repaired: {entries}",
    about="Other replicas, or what the log has besides, had the entries.",
)
ENTRIES_LOST: Final = EventKind(
    name="entries_lost",
    level=ERROR,
    text="{group}: entries {entries} are damaged on every member and lost",
    about="No replica has these entries any more.",
)
REPLICA_SET_ASIDE: Final = EventKind(
    name="replica_set_aside",
    level=ERROR,
    text="{group}: {error}; this replica is filled again, what it held is kept aside",
    about="A log cannot be used. Its files are kept in `quarantine/` until the replica is whole again.",
)
REPLICA_REFILLED: Final = EventKind(
    name="replica_refilled",
    level=INFO,
    text="{group}: {node} has no memory of the group and is to be a learner",
    about="A replica that is empty is filled again by the leader, which writes this.",
)
REPLICA_EMPTY: Final = EventKind(
    name="replica_empty",
    level=WARNING,
    text="{group}: its memory store was lost in the restart; starting empty (no other replica has it)",
    about="A stream in memory begins again without messages.",
)
REPLICA_DIFFERS: Final = EventKind(
    name="replica_differs",
    level=ERROR,
    text="stream {account} > {stream}: the replica on {node} differs from the others in sequences {first} to {last}",
    about="The comparison of replicas has found a difference; the replica is repaired.",
)
REPLICA_DISCARDED: Final = EventKind(
    name="replica_discarded",
    level=WARNING,
    text="{group}: this replica discards its memory store and requests a snapshot",
    about="A replica in memory differs from a majority.",
)

# --- members

MEMBER_LINKED: Final = EventKind(
    name="member_linked",
    level=INFO,
    text="link to {node} ({node_id}) began, session {session}",
    about="A server of the cluster is connected.",
)
MEMBER_UNLINKED: Final = EventKind(
    name="member_unlinked",
    level=INFO,
    text="link to {node} ({node_id}) ended: {reason}",
    about="The connection to a server of the cluster has ended.",
)
MEMBERS_CHANGED: Final = EventKind(
    name="members_changed",
    level=INFO,
    text="{group}: voters are now {voters}, learners {learners}",
    about="The leader of a group adds a member or removes one.",
)
MEMBER_REMOVED: Final = EventKind(
    name="member_removed",
    level=WARNING,
    text="server {node} ({node_id}) was removed from the meta group of cluster {cluster}",
    about="A server is no member of the cluster any more. Written by the meta leader.",
)
CLUSTER_FOUNDED: Final = EventKind(
    name="cluster_founded",
    level=INFO,
    text="meta group of cluster {cluster} founded by {members}",
    about="The servers of a new cluster have agreed.",
)
FEATURE_LEVEL_RAISED: Final = EventKind(
    name="feature_level_raised",
    level=INFO,
    text="the cluster uses feature level {feature_level} from now on, for {feature}",
    about="A feature is used that older releases do not have. Written by the meta leader.",
)
CLOCKS_DIFFER: Final = EventKind(
    name="clocks_differ",
    level=WARNING,
    text="the clocks differ: this machine's is {ahead_s} s ahead of the time of what is stored, which counts what has"
    " passed, and {cure}; ages, TTLs and duplicate windows go on",
    about="The clock of this machine was set, or does not agree with the others.",
)
CLOCKS_AGREE: Final = EventKind(
    name="clocks_agree", level=INFO, text="the clocks agree again", about="The difference has ended."
)
CUT_OFF: Final = EventKind(
    name="cut_off",
    level=WARNING,
    text="This server has reached no majority of its cluster for {seconds} s: {clients} clients are told to reconnect"
    " elsewhere",
    about="With `reconnect_when_cut_off`: clients are sent to other servers.",
)
CUT_OFF_ENDED: Final = EventKind(
    name="cut_off_ended",
    level=INFO,
    text="The cluster is reached again: clients may stay on this server",
    about="This server reaches a majority again.",
)

# --- resources

DISK_SLOW: Final = EventKind(
    name="disk_slow",
    level=WARNING,
    text="slow disk: a batch of writes and its fsync took {seconds} s, expected less than {expected_s} s",
    about="Acknowledgements waited for the disk of this server.",
    burst=5,
)
DISK_NEARLY_FULL: Final = EventKind(
    name="disk_nearly_full",
    level=WARNING,
    text="the disk is nearly full: {free_bytes} bytes are free, {reserve_bytes} are kept in reserve;"
    " publishes are refused",
    about="Publishes and new streams on disk are refused until there is room.",
)
DISK_HAS_ROOM: Final = EventKind(
    name="disk_has_room",
    level=WARNING,
    text="the disk has room again: {free_bytes} bytes are free; accepting publishes",
    about="The disk is nearly full no longer.",
)
MEMORY_NEARLY_FULL: Final = EventKind(
    name="memory_nearly_full",
    level=WARNING,
    text="memory is nearly exhausted: {usage}; publishes are refused",
    about="The process is near its memory limit; publishes are refused until memory is free.",
)
MEMORY_HAS_ROOM: Final = EventKind(
    name="memory_has_room",
    level=WARNING,
    text="there is memory again: {free_bytes} bytes are free; accepting publishes",
    about="The process is below its memory limit again.",
)
MEMORY_GIVEN_BACK: Final = EventKind(
    name="memory_given_back",
    level=INFO,
    text="memory is short: {cache_bytes} bytes of cached blocks are dropped; {usage}",
    about="Caches are dropped before anything is refused.",
)

# --- the server

SERVER_READY: Final = EventKind(name="server_ready", level=INFO, text="Server is ready", about="Clients are served.")
CONFIG_RELOADED: Final = EventKind(
    name="config_reloaded",
    level=INFO,
    text="Reloaded server configuration ({digest})",
    about="The server follows its configuration as it is now.",
)
CONFIG_RELOAD_FAILED: Final = EventKind(
    name="config_reload_failed",
    level=ERROR,
    text="Failed to reload server configuration: {error}",
    about="The configuration has an error, or a change that needs a restart; nothing has changed.",
)
LAME_DUCK: Final = EventKind(
    name="lame_duck",
    level=INFO,
    text="Entering lame duck mode, stop accepting new clients",
    about="The server is to stop: it hands leadership over and sends its clients to other servers.",
)
SERVER_STOPPING: Final = EventKind(
    name="server_stopping",
    level=INFO,
    text="Initiating Shutdown... ({signal})",
    about="A signal stops the server.",
)
SERVER_STOPPED: Final = EventKind(
    name="server_stopped",
    level=INFO,
    text="Server Exiting..",
    about="The last line of a server that was stopped.",
)
LINES_LEFT_OUT: Final = EventKind(
    name="lines_left_out",
    level=WARNING,
    text="{count} lines were left out of the log since the last one of their kind: {kind}",
    about="More lines of a kind came than its limit.",
    burst=1_000_000,  # its own number is bounded: one for each kind in LEFT_OUT_NS (api/logs/log_budget.py)
    per_hour=1_000_000,
)

KINDS: Final[tuple[EventKind, ...]] = tuple(kind for kind in list(globals().values()) if isinstance(kind, EventKind))
