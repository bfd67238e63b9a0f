"""Restores a stream from the directory of its backups, as of the last one, of a sequence, or of a time.

backup_contents.py says which messages that are. Configuration and consumers are those of the last backup at or before
that point; before the first one, the configuration of the first and no consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.api.cli.backup_contents import BackupContents, BackupPoint
from jetraft.api.cli.backup_directory import BackupManifest, is_consumer, read_segment
from jetraft.api.cli.backup_session import BackupError, BackupSession, check_name
from jetraft.api.cli.backup_taking import compressed
from jetraft.api.cli.progress_line import progress_line
from jetraft.cluster.backup.archive import STATE_NAME, ArchiveEntry
from jetraft.store.model.gotime import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMITS: Final = ("max_msgs", "max_bytes", "max_age", "max_msgs_per_subject")  # by which a stream removes messages


@attrs.frozen(kw_only=True)
class RestoreWish:
    """The point to restore, and the name of the stream that is made."""

    point: BackupPoint = attrs.field(factory=BackupPoint)
    name: str = ""  # under which; empty: its own, with its subjects and consumers


class Backup:
    """Messages, consumers and configuration of a restore. Raises BackupError where the directory is not sound."""

    def __init__(self, directory: Path, wanted: RestoreWish) -> None:
        manifest = BackupManifest.load(directory)
        if manifest is None or not manifest.segments:
            raise BackupError(f"{directory}: there is no backup")
        self.stream = manifest.stream
        check_name(wanted.name or self.stream)
        self._directory, self._wanted = directory, wanted
        self.contents = BackupContents(directory, manifest, wanted.point)
        self._based_on = self.contents.base or manifest.segments[0]

    def consumers(self) -> list[ArchiveEntry]:
        """Those of the last backup at or before the point; none where there is no such, or under another name."""
        if self._wanted.name or self.contents.base is None:
            return []
        found = []
        for entry in read_segment(self._directory, self._based_on):
            if entry.seq:
                break
            if is_consumer(entry):
                found.append(entry)
        return found

    def config(self) -> dict[str, Any]:
        """The configuration of the stream that is made."""
        config = dict(self._based_on.config)
        metadata = {key: value for key, value in (config.get("metadata") or {}).items() if not key.startswith("_nats.")}
        config["metadata"] = metadata
        if self._wanted.name:
            config |= {"name": self._wanted.name, "subjects": [self._wanted.name]}
            for name in ("mirror", "sources", "republish", "subject_transform"):
                config.pop(name, None)
        return config

    def state(self, consumers: int) -> dict[str, Any]:
        """The state of the stream that is made."""
        found, end_seq = self.contents.sum, self.contents.end_seq
        return {
            "messages": found.messages,
            "bytes": found.size,
            "first_seq": (found.first_seq or end_seq + 1) if end_seq else 0,
            "first_ts": format_time(found.first_ts_ns),
            "last_seq": end_seq,
            "last_ts": format_time(found.last_ts_ns),
            "consumer_count": consumers,
        }


def put(session: BackupSession, backup: Backup, wanted: RestoreWish) -> dict[str, Any]:
    """Make the stream and compare it with what it is to be. Raises BackupError, JetStreamSourceError, OSError."""
    consumers = backup.consumers()
    config, state = backup.config(), backup.state(len(consumers))
    name = wanted.name or backup.stream

    def entries(done: Callable[[int], None]) -> Iterator[ArchiveEntry]:
        yield ArchiveEntry(STATE_NAME, 0, 0, b"", orjson.dumps(state))
        yield from consumers
        for message in backup.contents.messages():
            yield message
            done(1)

    with progress_line(f"restoring {name}", state["messages"]) as done:
        info = session.restore(name, {"config": config, "state": state}, compressed(entries(done)))
    check_restored(name, config, state, info["state"])
    return info


def check_restored(name: str, config: dict[str, Any], wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Raise BackupError unless the stream has what it is to have. Its limits may have removed messages at once."""
    is_limited = any(config.get(limit, 0) > 0 for limit in LIMITS) or config.get("allow_msg_ttl", False)
    has_all = found["messages"] == wanted["messages"] and (
        not wanted["messages"] or found["first_seq"] == wanted["first_seq"]
    )
    if found["last_seq"] != wanted["last_seq"] or not (
        has_all or (is_limited and found["messages"] < wanted["messages"])
    ):
        shown = ", ".join(
            f"{field} {found[field]} instead of {wanted[field]}" for field in ("messages", "first_seq", "last_seq")
        )
        raise BackupError(f"stream {name}: it is there with {shown}")
