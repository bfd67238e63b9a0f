"""The stream that is written to: what is asked of its leader, and what must be true of it before a write begins."""

import base64
import logging
import time
from collections.abc import Sequence
from typing import Any

import attrs

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import BadOptionError, LoginRefusedError, ServerError, ServersUnavailableError
from pyspark_jetstream.leader import NO_MESSAGE_FOUND, ApiRefusalError, Leader
from pyspark_jetstream.replicas import survey
from pyspark_jetstream.wire import Rows
from pyspark_jetstream.write.fence import Fence, StoredRows, parse_fence
from pyspark_jetstream.write.options import EXACTLY_ONCE, WriteOptions
from pyspark_jetstream.write.rows import RowKey
from pyspark_jetstream.write.subjects import covers

LOG = logging.getLogger("pyspark_jetstream")

PROGRESS_S = 5.0  # between lines of the log
STALL_S = 5.0  # the longest silence in an answer, as in fetch.py
PURGES_MAX = 100  # of one attempt to make room; the subjects with the most fences come first
READ_BACK_BYTES = 8 << 20  # of one answer; a piece has about half of it


@attrs.frozen(kw_only=True, slots=True)
class Target:
    """What a task needs to know of the stream; as it was when the write was planned."""

    stream: str
    servers: tuple[str, ...]  # URLs, the leader's first
    created: str
    filters: tuple[str, ...]
    allow_rollup: bool


class WritableStream(Leader):
    """Requests to the leader of the stream; each is repeated for the retry timeout."""

    def info(self) -> dict[str, Any]:
        """The answer of STREAM.INFO."""
        return self._api.ask(f"STREAM.INFO.{self.stream}", {})

    def created(self) -> str:
        """When the stream was created: another stream of the same name has another time."""
        return str(self.info()["created"])

    def last_fence(self, subject: str) -> Fence | None:
        """The last fence on a subject, None when there is none."""
        try:
            message = self._api.ask(f"STREAM.MSG.GET.{self.stream}", {"last_by_subj": subject})["message"]
        except ApiRefusalError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return parse_fence(base64.b64decode(message.get("data", "")), int(message["seq"]))

    def fence_at(self, stream_seq: int) -> Fence | None:
        """The fence at a sequence, None when it is gone."""
        found = self._message(stream_seq)
        return None if found is None else parse_fence(base64.b64decode(found.get("data", "")), stream_seq)

    def rows_up_to(self, fence: Fence) -> StoredRows:
        """The rows of a micro-batch that are stored up to a fence; progress is logged every some seconds."""
        at: Fence | None = fence
        pieces: list[list[RowKey]] = []
        rows, logged_at_s = 0, time.monotonic()
        allow_direct = bool(self.info()["config"].get("allow_direct"))
        while at is not None:
            pieces.append(self._rows_between(at.seq - at.last_rows, at.seq, allow_direct=allow_direct))
            rows += len(pieces[-1])
            if time.monotonic() - logged_at_s > PROGRESS_S:
                logged_at_s = time.monotonic()
                LOG.warning("stream %s: %d of %d stored rows are read back", self.stream, rows, fence.rows)
            at = self.fence_at(at.previous) if at.previous else None
        return StoredRows([key for piece in reversed(pieces) for key in piece], rows == fence.rows)

    def _rows_between(self, start_seq: int, end_seq: int, *, allow_direct: bool) -> list[RowKey]:
        """The rows of a piece that exist: a replica is asked for all at once, the leader for those that it lacks."""
        found: dict[int, RowKey] = {}
        if allow_direct and end_seq > start_seq:
            try:
                found = self._from_replica(start_seq, end_seq)
            except ServerError as error:
                LOG.info("stream %s: %s; the leader is asked", self.stream, error)
        for stream_seq in range(start_seq, end_seq):
            if stream_seq not in found and (message := self._message(stream_seq)) is not None:
                found[stream_seq] = row_key(message)
        return [found[stream_seq] for stream_seq in sorted(found)]

    def _from_replica(self, start_seq: int, end_seq: int) -> dict[int, RowKey]:
        """The rows that the replica asked has, by sequence."""
        found: dict[int, RowKey] = {}
        while start_seq < end_seq:
            question = {"seq": start_seq, "batch": end_seq - start_seq, "max_bytes": READ_BACK_BYTES}
            rows = Rows()
            for part in self._api.first().direct_batch(self.stream, question, header_lines=b"", stall_s=STALL_S):
                assert isinstance(part, Rows)  # columns come to those who accept them
                rows = part
                for stream_seq, _, subject, header, payload in zip(*part.columns(), strict=True):
                    if stream_seq < end_seq:
                        found[stream_seq] = (subject, own_lines(header), payload)
            if not rows:
                break
            start_seq = rows.stream_seqs[-1] + 1
        return found

    def fences_below(self, prefix: str) -> dict[str, int]:
        """The subjects below a prefix of one query, with their number of messages."""
        answer = self._api.ask(f"STREAM.INFO.{self.stream}", {"subjects_filter": f"{prefix}.>"})
        return dict(answer["state"].get("subjects") or {})

    def keep_newest_fences(self, fence_subject: str) -> str:
        """Remove all fences but the newest of each subject, of any query; returns what is left, for a message.

        A purge that keeps one message is safe beside any publish: the newest fence at its place in the log stays.
        """
        state = self._api.ask(f"STREAM.INFO.{self.stream}", {"subjects_filter": f"{fence_subject}.*.*"})["state"]
        subjects: dict[str, int] = state.get("subjects") or {}
        many = sorted((one for one in subjects if subjects[one] > 1), key=subjects.__getitem__, reverse=True)
        for subject in many[:PURGES_MAX]:
            try:
                self._once.ask(f"STREAM.PURGE.{self.stream}", {"filter": subject, "keep": 1})
            except (ApiRefusalError, LoginRefusedError, ServersUnavailableError) as error:
                count = sum(subjects.values())
                return f"{count} of its messages are fences, and a purge of the old ones fails: {error}"
        return (
            f"{len(subjects)} of its messages are fences, one for each partition of each query, which stay: it needs "
            "room for them and for rows (those of a query that is never started again may be purged)"
        )

    def _message(self, stream_seq: int) -> dict[str, Any] | None:
        try:
            answer = self._api.ask(f"STREAM.MSG.GET.{self.stream}", {"seq": stream_seq})
        except ApiRefusalError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        message: dict[str, Any] = answer["message"]
        return message


def row_key(message: dict[str, Any]) -> RowKey:
    """The row in a stored message, as `Rows.keys` has it."""
    block = base64.b64decode(message.get("hdrs", ""))
    own = own_lines(block.partition(b"\r\n")[2])
    return str(message["subject"]).encode(), own, base64.b64decode(message.get("data", ""))


def own_lines(lines: bytes) -> bytes:
    """Header lines without those of the atomic batch that the message came in."""
    own = (line for line in lines.split(b"\r\n") if line and not line.startswith(b"Nats-Batch-"))
    return b"".join(line + b"\r\n" for line in own)


def plan_target(options: WriteOptions) -> Target:
    """Ask the leader for the stream. Raises BadOptionError when it cannot be written to as the options say."""
    connections = ConnectionCache()
    try:
        info = WritableStream(options.access, options.stream, connections).info()
    finally:
        connections.close()
    check_config(info["config"], options)
    leader = (info.get("cluster") or {}).get("leader")
    servers = sorted(survey(options.access), key=lambda server: server.name != leader)
    return Target(
        stream=options.stream,
        servers=tuple(server.url for server in servers) or options.access.servers,
        created=str(info["created"]),
        filters=tuple(info["config"].get("subjects") or (options.stream,)),
        allow_rollup=bool(info["config"].get("allow_rollup_hdrs")),
    )


def check_config(config: dict[str, Any], options: WriteOptions) -> None:
    """Raise BadOptionError when rows cannot be written to a stream of this configuration."""
    name = options.stream
    filters: Sequence[str] = config.get("subjects") or ()
    if config.get("mirror") or not filters:
        raise BadOptionError(
            f"stream {name!r} has no subjects (a mirror, or sources only): nothing can be written to it"
        )
    if config.get("sealed"):
        raise BadOptionError(f"stream {name!r} is sealed")
    if config.get("no_ack"):
        raise BadOptionError(f"stream {name!r} has no_ack: a write could not know what is stored")
    if options.subject is not None and not any(covers(one, options.subject) for one in filters):
        raise BadOptionError(f"option 'subject': stream {name!r} keeps {', '.join(filters)}, not {options.subject!r}")
    if options.exactly_once:
        check_fences(config, options, filters)


def check_fences(config: dict[str, Any], options: WriteOptions, filters: Sequence[str]) -> None:
    """Raise BadOptionError when fences would not hold in a stream of this configuration."""
    name, fences = options.stream, f"{options.fence_subject}.>"
    if not config.get("allow_atomic"):
        raise BadOptionError(f"delivery={EXACTLY_ONCE} needs allow_atomic, which stream {name!r} does not have")
    if not any(covers(one, f"{options.fence_subject}.*.*") for one in filters):
        raise BadOptionError(
            f"delivery={EXACTLY_ONCE} keeps its fences in the stream: option 'fenceSubject' is "
            f"{options.fence_subject!r}, and the subjects of stream {name!r} ({', '.join(filters)}) do not contain "
            f"{fences}: add it to them, or choose a fenceSubject within them"
        )
    if config.get("retention", "limits") != "limits":
        raise BadOptionError(
            f"delivery={EXACTLY_ONCE} needs retention limits: stream {name!r} has {config['retention']}, where "
            "consumers remove fences"
        )
    if config.get("subject_transform"):
        raise BadOptionError(f"delivery={EXACTLY_ONCE} needs a stream without subject_transform")
    if config.get("discard_new_per_subject") and not config.get("allow_rollup_hdrs"):
        raise BadOptionError(f"delivery={EXACTLY_ONCE} with discard_new_per_subject needs allow_rollup_hdrs")
