"""Listeners to what applying has changed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.ids import NodeId
    from jetraft.store.stream.consumer_state import ConsumerState


class StreamEvents(Protocol):
    """A listener to what applying has changed: the replica around the machine."""

    def config_changed(self, config: StreamConfig) -> None:
        """A configuration took effect."""

    def consumer_created(self, state: ConsumerState) -> None:
        """A consumer exists."""

    def consumer_updated(self, state: ConsumerState, *, is_reset: bool) -> None:
        """A consumer has a new configuration, or starts again."""

    def consumer_deleted(self, state: ConsumerState) -> None:
        """A consumer is gone."""

    def purged(self, first_seq: int) -> None:
        """Messages were purged or expired; nothing is left below `first_seq`."""

    def applied(self, *, messages_added: bool) -> None:
        """A batch of entries has been applied."""

    def became_leader(self, term: int) -> None:
        """This replica leads, and its state is complete."""

    def became_follower(self, term: int, leader: NodeId | None) -> None:
        """This replica follows, or the leader it knows has changed."""
