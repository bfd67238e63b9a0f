"""What a stream that copies others needs of them: that they do not copy it, and that its messages may be as large.

Origins elsewhere (`external`) are not looked at. Source: stream.go (checkStreamCfg), observed on 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model import errors

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
        *((name, errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG) for name in _sourced(config)),
    ):
        row = table.get(StreamKey(account, name))
        if row is not None and 0 < config.max_msg_size < row.config.max_msg_size:
            raise error.with_values()
    seen: set[str] = set()
    waiting = [*_mirrored(config), *_sourced(config)]
    while waiting:
        name = waiting.pop()
        if name == config.name:
            raise errors.STREAM_INVALID_CONFIG.with_values(err="detected cycle")
        row = table.get(StreamKey(account, name)) if name not in seen else None
        seen.add(name)
        if row is not None:
            waiting += [*_mirrored(row.config), *_sourced(row.config)]


def _mirrored(config: StreamConfig) -> Iterable[str]:
    return [config.mirror.name] if config.mirror is not None and config.mirror.external is None else []


def _sourced(config: StreamConfig) -> Iterable[str]:
    return [source.name for source in config.sources if source is not None and source.external is None]
