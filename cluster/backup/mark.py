"""The mark in the configuration of a stream that is being restored (restoration.py): with it a stream is not served."""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.store.model.config import DiscardPolicy, RetentionPolicy, StreamConfig

MARK: Final = "_jetraft.restoring"


def is_marked(config: StreamConfig) -> bool:
    """Whether a stream with this configuration is being restored."""
    return MARK in config.metadata


def marked(config: StreamConfig, restored_by: str) -> StreamConfig:
    """The configuration while a stream is restored: it can be created, and nothing is dropped before all is there.

    An archive of the first version has messages and their removals, consumers last: limits and retention would judge
    what is not whole.
    """
    return attrs.evolve(
        config,
        metadata={**config.metadata, MARK: restored_by},
        sealed=False,
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        discard_new_per_subject=False,
        max_msgs=-1,
        max_bytes=-1,
        max_msgs_per_subject=-1,
    )
