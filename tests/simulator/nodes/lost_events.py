"""Events inside a node that are lost, at random: what follows from them has to come about by comparison.

Each of `EVENTS` only makes sooner what a loop finds by itself (cluster/calls/reconciling.py). What a promise rests on
at that moment, as the end of a right to lead, is no such event, and is not among them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from jetraft.cluster.meta.backend import MetaBackend
from jetraft.cluster.meta.directory import ReplicaDirectory
from jetraft.cluster.meta.leader_duties import LeaderDuties
from jetraft.cluster.requests.inquiries import Inquiries
from jetraft.cluster.requests.template_publishes import TemplatePublishes
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.cluster.upkeep.sweeping import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulator.nodes.virtual import VirtualWorld

LOST: Final = 0.5  # of the calls
EVENTS: Final[tuple[tuple[Any, str], ...]] = (
    (ReplicaDirectory, "note"),
    (MetaBackend, "retry"),
    (MetaBackend, "retry_all"),
    (LeaderDuties, "attend"),
    (Inquiries, "report_settled"),
    (TemplatePublishes, "_wake"),
    (StreamReplica, "look_after_members"),
    (StreamReplica, "note_forgotten"),
    (StreamReplica, "_propose_config"),
    (Sweeper, "_note"),
)


class LostEvents:
    """Loses events from `begin` on, while `lasting` is entered."""

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world
        self._has_begun = False

    def begin(self) -> None:
        """From now on, and to the end: also after the faults."""
        self._has_begun = True

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Stand between those who tell and those who are told."""
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in EVENTS:
                patch.setattr(owner, name, self._sometimes(getattr(owner, name)))
            yield

    def _sometimes(self, event: Any) -> Any:
        def told(*args: Any, **kwargs: Any) -> None:
            if self._has_begun and self._world.chance(LOST):
                self._world.counts["events lost"] += 1
            else:
                event(*args, **kwargs)

        return told
