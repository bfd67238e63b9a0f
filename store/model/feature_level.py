"""Which features all servers of the cluster can apply: the feature level of the table. Pure.

During a rolling upgrade a group has members of two versions. An entry of a kind that the older one does not know stops
its group there, and one that it understands in part gives it another state. So whatever changes what entries say or
mean belongs to a level, each server says which level it knows (profile.py), and the table has the level that is in use.
A request that needs a higher one has it raised first, by an entry of the meta group, if all its members are linked and
know it; else it is refused, with the names of those that do not. From then on a server of an older version takes no
part: it stops at that entry. Nothing is raised before it is needed, so an upgrade can be undone until then. etcd's
cluster version and Kafka's feature levels are for the same (decision 122).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.store.model.config import StreamConfig

FIRST: Final = 1  # of servers that say none
LEVEL: Final = 3  # that this version knows: the next feature that needs one raises it, once this one is released
# Of the oldest version that this one upgrades from (docs/releases.tsv): the meta leader raises the table to it as soon
# as all members say that they know it, and what needs no more is used without asking.
BASE: Final = 2
LEVEL_MAX: Final = 1 << 16  # that a message or a table may have
TEMPLATES: Final = 2  # the level that templates of streams need
MOVES: Final = 2  # the level from which the table remembers where a stream is moved from
LOGS_IN_LEDGER: Final = 2  # a server that is kept below it writes nothing that older ones do not open (decision 116)
STREAM_KEYS: Final[Mapping[str, int]] = {  # what keys in the metadata of streams begin with, and the level they need
    "jetraft.chain": 2,
    "jetraft.schema": 2,
}


class NewerLevelError(Exception):
    """The cluster uses features that this server does not know: it takes no part until it is upgraded."""

    def __init__(self, level: int, known: int) -> None:
        super().__init__(f"the cluster uses feature level {level} and this server knows {known}: it must be upgraded")


def needed_by(config: StreamConfig, keys: Mapping[str, int] = STREAM_KEYS) -> tuple[int, str]:
    """The level that a stream needs, and the key that needs it; `FIRST` and no key if any server will do."""
    found = [(level, key) for key, level in keys.items() if any(name.startswith(key) for name in config.metadata)]
    return max(found, default=(FIRST, ""))
