"""Templates of streams, as the meta group knows them: an idea of 2020 that this server has with `legacy_api`.

A message on a subject of a template makes a stream for that very subject, named as the subject with `_` for dots. Which
template made a stream is in its metadata (`jetraft.template`), so the table of streams knows how many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from jetraft.cluster.meta.commands import blob, number, pack_config, text, unpack_config
from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model._patterns import PatternTree
from jetraft.store.model.extensions import stream_extensions
from jetraft.store.model.subject import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jetraft.store.model.config import StreamConfig


@attrs.frozen(kw_only=True, slots=True)
class StreamTemplate:
    """One template. `incarnation` is the index of the entry that made it."""

    account: str
    name: str
    config: StreamConfig
    max_streams: int
    incarnation: int

    @property
    def key(self) -> StreamKey:
        """Account and name."""
        return StreamKey(self.account, self.name)

    def config_for(self, subject: str) -> StreamConfig:
        """The config of the stream of a subject."""
        return attrs.evolve(self.config, name=stream_of(subject), subjects=(subject,))


def stream_of(subject: str) -> str:
    """The name of the stream of a subject; another subject may have the same."""
    return subject.replace(".", "_")


def template_of(config: StreamConfig) -> str:
    """The template that made a stream; empty for any other stream."""
    return stream_extensions(config).template if config.metadata else ""


def captured_subjects(config: StreamConfig) -> tuple[str, ...]:
    """The subjects that a stream's leader captures: none of a stream of a template, to which publishes are brought."""
    return () if template_of(config) else config.subjects


class Templates:
    """The templates of all accounts, by account and name, in order of creation."""

    def __init__(self) -> None:
        self._rows: dict[StreamKey, StreamTemplate] = {}

    @property
    def rows(self) -> Mapping[StreamKey, StreamTemplate]:
        """All of them."""
        return self._rows

    def put(self, template: StreamTemplate) -> None:
        """Add one."""
        self._rows[template.key] = template

    def remove(self, key: StreamKey) -> None:
        """Forget one."""
        del self._rows[key]

    def taking(self, account: str, subject: bytes) -> StreamTemplate | None:
        """The template that takes messages on this subject."""
        return next((row for row in self._of(account) if any(matches(one, subject) for one in _subjects(row))), None)

    def overlapping(self, account: str, patterns: Iterable[bytes], *, ignore: str = "") -> bool:
        """Whether a template other than this one takes some of these subjects."""
        if not self._rows:
            return False
        others: PatternTree[str] = PatternTree()
        for row in self._of(account):
            if row.name != ignore:
                for one in _subjects(row):
                    others.add(one, row.name)
        return others.meets(PatternTree(patterns), bounded=False)

    def _of(self, account: str) -> Iterator[StreamTemplate]:
        return (row for row in self._rows.values() if row.account == account)


def _subjects(template: StreamTemplate) -> Iterator[bytes]:
    return (subject.encode() for subject in template.config.subjects)


def template_fields(row: StreamTemplate) -> list[object]:
    """A template for a message."""
    return [row.account, row.name, pack_config(row.config), row.max_streams, row.incarnation]


def template_row(fields: list[Any]) -> StreamTemplate:
    """The template of `template_fields`. Raises TypeError, ValueError or ApiError."""
    account, name, packed, max_streams, incarnation = fields
    return StreamTemplate(
        account=text(account),
        name=text(name),
        config=unpack_config(blob(packed)),
        max_streams=number(max_streams),
        incarnation=number(incarnation),
    )
