"""Demands of a stream that copies others: that they do not copy it, and that its messages may be as large.

Origins elsewhere (`external`) are not looked at. Source: stream.go (checkStreamCfg), observed on 2.15.1.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model import errors
from jetraft.store.model._patterns import PatternTree, TooManyCombinationsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.meta.table import MetaTable
    from jetraft.store.model.config import StreamConfig


def with_direct_gets(table: MetaTable, account: str, config: StreamConfig) -> StreamConfig:
    """The configuration; a mirror answers direct gets of its origin when that allows them, whatever it says itself."""
    for name in _mirrored(config):
        row = table.get(StreamKey(account, name))
        if row is not None:
            return attrs.evolve(config, mirror_direct=row.config.allow_direct)
    return config


def check_origins_fit(table: MetaTable, account: str, config: StreamConfig) -> None:
    """Raise ApiError when a stream would be its own origin, over others or not, or is narrower than an origin."""
    for name, error in (
        *((name, errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG) for name in _mirrored(config)),
        *((name, errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG) for name, _ in _sourced(config)),
    ):
        row = table.get(StreamKey(account, name))
        if row is not None and 0 < config.max_msg_size < row.config.max_msg_size:
            raise error.with_values()
    _check_no_cycle(table, account, config)


def _check_no_cycle(table: MetaTable, account: str, config: StreamConfig) -> None:
    """Raise ApiError for a stream to which a message would come in two ways, or come back.

    Streams are looked at in the order in which they are named, as in nats-server, where the order decides: an origin
    that was looked at before counts. A source counts when its filter fits a subject of the stream that has it.
    """
    seen: set[str] = set()
    waiting, named = deque([config]), {config.name}
    while waiting:
        holder = waiting.popleft()
        seen.add(holder.name)
        origins = [*_sourced(holder), *((name, "") for name in _mirrored(holder))]
        back = [filtered.encode() for name, filtered in origins if name in seen]
        if back and (b"" in back or _meet(holder.subject_filters, back)):
            raise errors.STREAM_INVALID_CONFIG.with_values(err="detected cycle")
        for name, _ in origins:
            if name not in named and (row := table.get(StreamKey(account, name))) is not None:
                named.add(name)
                waiting.append(row.config)


def _meet(subjects: Iterable[bytes], filters: Iterable[bytes]) -> bool:
    try:
        return PatternTree(subjects).meets(PatternTree(filters))
    except TooManyCombinationsError:
        raise errors.STREAM_INVALID_CONFIG.with_values(
            err="too many wildcard filters of sources to compare with the subjects"
        ) from None


def _sourced(config: StreamConfig) -> Iterable[tuple[str, str]]:
    """The names and filters of the streams that this one copies into itself."""
    sources = (source for source in config.sources if source is not None and source.external is None)
    return [(source.name, source.filter_subject) for source in sources]


def _mirrored(config: StreamConfig) -> Iterable[str]:
    return [config.mirror.name] if config.mirror is not None and config.mirror.external is None else []
