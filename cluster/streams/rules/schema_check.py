"""Judges payloads by the schemas of the stream (`jetraft.schema`) when they are published. Pure.

Only the leader judges, before a message has a sequence: what is in the log is never judged, so replicas do not need the
libraries, and a change of the schema says nothing of what was stored before. One place for all publishes: `admit.py`
asks for each message that clients send, `batching.py` for each message of an atomic batch as it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.streams.publishing.candidate import PublishRefused
from jetraft.store.model import errors, message
from jetraft.store.model.extensions import stream_extensions
from jetraft.store.model.schemas.compiled import UnusableSchemaError, fault_in
from jetraft.store.model.schemas.rules import rule_for

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.candidate import Candidate
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.schemas.rules import SchemaRule

KV_OPERATION: Final = b"KV-Operation"
REMOVALS: Final = (b"DEL", b"PURGE")  # of a key-value bucket: messages without a payload


@attrs.frozen(slots=True)
class SchemaCheck:
    """The schemas of one stream."""

    rules: tuple[SchemaRule, ...]

    @classmethod
    def of(cls, config: StreamConfig) -> SchemaCheck | None:
        """The check of a configuration; None without a schema."""
        rules = stream_extensions(config).schemas
        return cls(rules) if rules else None

    def check(self, candidate: Candidate) -> None:
        """Raise PublishRefused for a payload that does not fit, or that this server cannot judge."""
        rule = rule_for(self.rules, candidate.subject)
        if rule is None or (not candidate.payload_len and message.get(candidate.hdr, KV_OPERATION) in REMOVALS):
            return
        try:
            fault = fault_in(rule, candidate.payload)
        except UnusableSchemaError as error:
            raise PublishRefused(errors.JETRAFT_SCHEMA_UNUSABLE.with_values(err=error)) from error
        if fault:
            raise PublishRefused(errors.JETRAFT_SCHEMA_MISMATCH.with_values(err=fault))
