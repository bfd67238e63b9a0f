"""The stream that is written to: what is asked of its leader, and what must be true of it before a write begins."""

import base64
from collections.abc import Sequence
from typing import Any

import attrs

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.leader import NO_MESSAGE_FOUND, ApiRefusalError, Leader
from pyspark_jetstream.replicas import survey
from pyspark_jetstream.write.fence import Fence, parse_fence
from pyspark_jetstream.write.options import EXACTLY_ONCE, WriteOptions
from pyspark_jetstream.write.subjects import covers

RowKey = tuple[bytes, bytes, bytes]


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

    def rows_up_to(self, fence: Fence) -> list[RowKey] | None:
        """The rows of a micro-batch that are stored up to a fence; None when some are gone."""
        at: Fence | None = fence
        found: list[RowKey] = []
        while at is not None:
            for stream_seq in range(at.seq - at.last_rows, at.seq):
                message = self._message(stream_seq)
                if message is None:
                    return None
                found.append(row_key(message))
            if not at.previous:
                return found if len(found) == fence.rows else None
            at = self.fence_at(at.previous)
        return None

    def fences_below(self, prefix: str) -> dict[str, int]:
        """The subjects below a prefix of one query, with their number of messages."""
        answer = self._api.ask(f"STREAM.INFO.{self.stream}", {"subjects_filter": f"{prefix}.>"})
        return dict(answer["state"].get("subjects") or {})

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
    lines = [line for line in block.split(b"\r\n")[1:] if line and not line.startswith(b"Nats-Batch-")]
    own = b"".join(line + b"\r\n" for line in lines)
    return str(message["subject"]).encode(), own, base64.b64decode(message.get("data", ""))


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
