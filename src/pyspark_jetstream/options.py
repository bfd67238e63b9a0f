"""The options of the data source: names, defaults and errors.

Spark passes the options as strings with case-insensitive names. They are parsed once, when the data source is made, so
that an error is raised by `.load()` and not in a task. The frozen result is part of each partition.
"""

import difflib
from collections.abc import Mapping
from typing import Any

import attrs

from pyspark_jetstream import positions, values
from pyspark_jetstream.credentials import Credentials, credentials_of
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.positions import Incarnation, Position
from pyspark_jetstream.subjects import cover
from pyspark_jetstream.typed.stream_schemas import Decoding
from pyspark_jetstream.values import ALL_COLUMNS, MORE_COLUMNS, VALUE, SecretInValueError, parse_servers

__all__ = ["Access", "Options", "Position", "parse_options", "parse_servers"]

# A failover takes a few seconds (jetraft: under 3, nats-server: up to 10); 30 s are enough for the restart of a node.
RETRY_TIMEOUT_S = 30.0
# nats.py waits 2 s for a connection, the Go client 2 s, Kafka's socket setup 10 s.
CONNECT_TIMEOUT_S = 3.0
EARLIEST = Position(keyword="earliest")
TRIGGER_DELAY_S = 15 * 60.0  # as Kafka's source


@attrs.frozen(kw_only=True, slots=True)
class Access:
    """How to connect to the servers and log in; the same for all of them."""

    servers: tuple[str, ...]  # URLs, nats://host:port or tls://host:port
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    credentials: Credentials | None = None
    tls: bool = False
    tls_first: bool = False  # the handshake comes before the server's INFO
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    retry_timeout_s: float = RETRY_TIMEOUT_S
    api_prefix: str = "$JS.API"
    inbox_prefix: str = "_INBOX"
    name: str = "pyspark_jetstream"  # of the connection, as the server's /connz shows it


@attrs.frozen(kw_only=True, slots=True)
class Options:
    """All options of a query. In a partition `streams` has one name."""

    access: Access
    streams: tuple[str, ...]  # names, and patterns with *
    several: bool = False  # given as `streams`: offsets are by stream, and there is a column for the name
    subjects: tuple[str, ...] = ()  # filters; none: all subjects
    columns: tuple[str, ...] = ALL_COLUMNS[:-1]
    tokens: tuple[tuple[str, int], ...] = ()  # columns that are a token of the subject, by its place
    decode: str = ""  # "true", or the number of a schema of the stream
    permissive: bool = False  # a row that does not fit its schema is null
    decoding: Decoding | None = None  # what `decode` means; a planned query has it
    starting: Position = EARLIEST  # the default of NATS consumers: deliver all
    ending: Position | None = None  # None: not given
    rows_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    rows_per_trigger_min: int | None = None
    trigger_delay_max_s: float = TRIGGER_DELAY_S
    fail_on_data_loss: bool = True
    accepted: tuple[tuple[str, Incarnation], ...] = ()
    partitions_min: int = 1
    partition_rows_max: int | None = None
    durable: str | None = None
    pushdown: bool = False
    query: str | None = None
    stats_dir: str | None = None

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns that a query with these options may have."""
        more = MORE_COLUMNS if self.decode else MORE_COLUMNS[:-1]
        return (*ALL_COLUMNS, *more, *(name for name, _ in self.tokens))

    @property
    def stream(self) -> str:
        """The one stream of a partition or of a query without `streams`."""
        return self.streams[0]

    def of_stream(self, stream: str) -> "Options":
        """The options of the part of the query that reads this stream."""
        return attrs.evolve(self, streams=(stream,))

    def holds(self, retention: str) -> bool:
        """Whether a stream of this retention keeps the rows of the query, and drops others below them at any time."""
        return self.durable is not None and bool(self.subjects) and retention != "limits"

    def accepts(self, stream: str) -> Incarnation | None:
        """The incarnation that the user accepts for this stream."""
        given = dict(self.accepted)
        return given.get(stream, given.get("") if len(self.streams) == 1 else None)


def parse_options(given: Mapping[str, str]) -> Options:
    """Return the parsed options. Raises BadOptionError, naming the option."""
    texts = {name.lower(): value for name, value in given.items() if not is_of_spark(name.lower())}
    for name in texts:
        if name not in KNOWN:
            raise BadOptionError(unknown_option(name))
    if not texts.get("servers", "").strip():
        raise BadOptionError("option 'servers' is required")
    if not texts.get("stream", "").strip() and "streams" not in texts:
        raise BadOptionError("option 'stream' is required (or 'streams' for several)")
    parsed = {name.lower(): parse_one(PARSERS, name, texts[name.lower()]) for name in PARSERS if name.lower() in texts}
    _check_together(parsed)
    found = Options(access=_access(parsed), **_fields(parsed))
    if wrong := [name for name in found.columns if name not in found.all_columns]:
        hint = "; 'value' needs option 'decode'" if VALUE in wrong else ""
        raise BadOptionError(
            f"option 'columns': expected columns out of {', '.join(found.all_columns)}, got {wrong[0]!r}{hint}"
        )
    return found


def is_of_spark(name: str) -> bool:
    """Whether an option is one of Spark itself, which passes those of a query to its sources too."""
    return name in OF_SPARK or name.startswith("spark.")


def unknown_option(name: str) -> str:
    """Return the message for an unknown option, with the most similar known one."""
    near = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"; did you mean {KNOWN[near[0]]!r}?" if near else f"; known options: {', '.join(sorted(KNOWN.values()))}"
    return f"unknown option {name!r}{hint}"


def parse_one(parsers: Mapping[str, values.Parser], name: str, text: str) -> Any:
    """Return the value of an option. Raises BadOptionError."""
    try:
        return parsers[name](text.strip())
    except SecretInValueError as error:
        raise BadOptionError(f"option {name!r}: {error}") from None
    except ValueError as error:
        shown = "..." if name in SECRETS else repr(text)
        raise BadOptionError(f"option {name!r}: {error}, got {shown}") from None


def _check_together(parsed: Mapping[str, Any]) -> None:
    for first, second in PAIRS:
        if (first.lower() in parsed) != (second.lower() in parsed):
            raise BadOptionError(f"options {first!r} and {second!r} belong together: one of them is missing")
    for first, second in EXCLUSIVE:
        if first.lower() in parsed and second.lower() in parsed:
            raise BadOptionError(f"options {first!r} and {second!r} exclude each other")
    if "maxtriggerdelay" in parsed and "minrowspertrigger" not in parsed:
        raise BadOptionError("option 'maxTriggerDelay' is for 'minRowsPerTrigger', which is missing")
    if "mode" in parsed and not parsed.get("decode"):
        raise BadOptionError("option 'mode' is for 'decode', which is missing")
    _check_named_streams(parsed)
    if "durable" in parsed and any("*" in name for name in parsed.get("streams", ())):
        raise BadOptionError("option 'durable' needs the names of streams: 'streams' has a pattern")
    least, most = parsed.get("minrowspertrigger", 0), parsed.get("maxrecordspertrigger")
    if most is not None and least > most:
        raise BadOptionError("option 'minRowsPerTrigger' is above 'maxRecordsPerTrigger'")


def _check_named_streams(parsed: Mapping[str, Any]) -> None:
    """Raise BadOptionError when an option gives a position in a stream that the query does not read."""
    streams = parsed.get("streams") or parsed.get("stream") or ()
    named = {
        option: [name for name, _ in parsed[option.lower()].by_stream]
        for option in POSITIONS
        if option.lower() in parsed
    }
    named["acceptIncarnation"] = [name for name, _ in parsed.get("acceptincarnation", ()) if name]
    for option, names in named.items():
        strangers = [name for name in names if not any(values.matches(name, one) for one in streams)]
        if strangers:
            raise BadOptionError(
                f"option {option!r} names stream {strangers[0]!r}; the query reads {', '.join(map(repr, streams))}"
            )


def _access(parsed: Mapping[str, Any]) -> Access:
    fields = {field: parsed[name] for name, field in ACCESS_FIELDS.items() if name in parsed}
    if "domain" in parsed:
        fields["api_prefix"] = f"$JS.{parsed['domain']}.API"
    if "queryname" in parsed:
        fields["name"] = f"spark {parsed['queryname']}"
    return Access(credentials=credentials_of(parsed), **fields)


def _fields(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Options other than the access."""
    fields = {field: parsed[name] for name, field in OPTION_FIELDS.items() if name in parsed}
    fields["several"] = "streams" in parsed
    if "subjecttokens" in parsed:
        fields["tokens"] = _placed(parsed["subjecttokens"], parsed.get("subject", ()))
    if "columns" not in parsed:
        columns: tuple[str, ...] = ALL_COLUMNS if fields["several"] else ALL_COLUMNS[:-1]
        if fields.get("decode"):
            columns = tuple(VALUE if name == "data" else name for name in columns)
        fields["columns"] = (*columns, *(name for name, _ in fields.get("tokens", ())))
    if not parsed.get("includeheaders", True):
        fields["columns"] = tuple(name for name in fields["columns"] if name != "headers")
    if not fields["columns"]:
        raise BadOptionError("option 'includeHeaders': no column is left")
    return fields


def _placed(names: tuple[str, ...], subjects: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The named tokens with their places: they begin at the first wildcard of the filter, or of the subject."""
    tokens = cover(subjects).split(".") if subjects else []
    first = next((place for place, token in enumerate(tokens) if token in {"*", ">"}), 0)
    return tuple((name, first + place) for place, name in enumerate(names) if name)


PARSERS: dict[str, values.Parser] = {
    "servers": values.parse_servers,
    "stream": values.parse_stream,
    "streams": values.parse_streams,
    "subject": values.parse_subjects,
    "columns": values.parse_columns,
    "includeHeaders": values.parse_bool,
    "subjectTokens": values.parse_tokens,
    "decode": values.parse_decode,
    "mode": values.parse_mode,
    "startingOffsets": positions.parse_starting,
    "startingOffsetsByTimestamp": positions.parse_starting_time,
    "endingOffsets": positions.parse_ending,
    "endingOffsetsByTimestamp": positions.parse_ending_time,
    "maxRecordsPerTrigger": values.parse_count,
    "maxBytesPerTrigger": values.parse_bytes,
    "minRowsPerTrigger": values.parse_count,
    "maxTriggerDelay": values.parse_seconds,
    "failOnDataLoss": values.parse_bool,
    "acceptIncarnation": positions.parse_incarnations,
    "minPartitions": values.parse_count,
    "maxPartitionRows": values.parse_count,
    "pushdown": values.parse_bool,
    "durable": values.parse_name,
    "queryName": values.parse_text,
    "user": values.parse_text,
    "password": values.parse_text,
    "token": values.parse_text,
    "credsFile": values.parse_file,
    "nkeySeedFile": values.parse_file,
    "nkeySeed": values.parse_text,
    "jwt": values.parse_text,
    "tls": values.parse_bool,
    "tlsHandshakeFirst": values.parse_bool,
    "tlsCaFile": values.parse_file,
    "tlsCertFile": values.parse_file,
    "tlsKeyFile": values.parse_file,
    "domain": values.parse_name,
    "apiPrefix": values.parse_prefix,
    "inboxPrefix": values.parse_prefix,
    "connectTimeout": values.parse_seconds,
    "retryTimeout": values.parse_seconds,
    "statsDir": values.parse_text,
}
KNOWN: dict[str, str] = {name.lower(): name for name in PARSERS}
OF_SPARK = frozenset({"checkpointlocation", "outputmode"})
SECRETS = frozenset({"password", "token", "nkeySeed", "jwt"})
PAIRS = (("user", "password"), ("tlsCertFile", "tlsKeyFile"))
LOGINS = ("user", "token", "credsFile", "nkeySeedFile", "nkeySeed")
EXCLUSIVE = (
    ("stream", "streams"),
    ("startingOffsets", "startingOffsetsByTimestamp"),
    ("endingOffsets", "endingOffsetsByTimestamp"),
    ("domain", "apiPrefix"),
    ("jwt", "credsFile"),
    *((first, second) for first in LOGINS for second in LOGINS[LOGINS.index(first) + 1 :]),
)
POSITIONS = ("startingOffsets", "startingOffsetsByTimestamp", "endingOffsets", "endingOffsetsByTimestamp")
ACCESS_FIELDS = {
    "servers": "servers",
    "user": "user",
    "password": "password",
    "token": "token",
    "tls": "tls",
    "tlshandshakefirst": "tls_first",
    "tlscafile": "tls_ca_file",
    "tlscertfile": "tls_cert_file",
    "tlskeyfile": "tls_key_file",
    "connecttimeout": "connect_timeout_s",
    "retrytimeout": "retry_timeout_s",
    "apiprefix": "api_prefix",
    "inboxprefix": "inbox_prefix",
}
OPTION_FIELDS = {
    "stream": "streams",
    "streams": "streams",
    "subject": "subjects",
    "columns": "columns",
    "decode": "decode",
    "mode": "permissive",
    "startingoffsets": "starting",
    "startingoffsetsbytimestamp": "starting",
    "endingoffsets": "ending",
    "endingoffsetsbytimestamp": "ending",
    "maxrecordspertrigger": "rows_per_trigger_max",
    "maxbytespertrigger": "bytes_per_trigger_max",
    "minrowspertrigger": "rows_per_trigger_min",
    "maxtriggerdelay": "trigger_delay_max_s",
    "failondataloss": "fail_on_data_loss",
    "acceptincarnation": "accepted",
    "minpartitions": "partitions_min",
    "maxpartitionrows": "partition_rows_max",
    "durable": "durable",
    "pushdown": "pushdown",
    "queryname": "query",
    "statsdir": "stats_dir",
}
STREAMING_ONLY = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "durable", "acceptIncarnation")
