"""The dispatcher as one consumer's runner sees it: the stream, the log of commands, and a few shared bounds.

The dispatcher owns the runners and imports them; they know of it by this Protocol alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.consumers.effects import Now
    from jetraft.cluster.consumers.selector import Messages
    from jetraft.cluster.ports import MessageSource
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.commands import ConsumerCommand
    from jetraft.store.port import StoreCorrupt


class RunnerPort(Protocol):
    """The part of a ConsumerDispatcher that its runners use; it lasts for one term of leadership."""

    copies_room_bytes: int  # of the bound on messages copied by all runners of the stream: what is left

    @property
    def site(self) -> Site:
        """The node and the account of the stream."""

    @property
    def stream(self) -> str:
        """The name of the stream."""

    @property
    def messages(self) -> Messages:
        """The stream's live messages."""

    @property
    def source(self) -> MessageSource:
        """The store from which the outbox loads what it delivers."""

    @property
    def stream_replicas(self) -> int:
        """The stream's number of replicas, which a consumer inherits."""

    @property
    def message_bytes_max(self) -> int:
        """The stream's limit for the size of a message, 0 for none."""

    def now(self) -> Now:
        """This moment."""

    def propose(self, batch: Sequence[ConsumerCommand], committed: Callable[[], None]) -> None:
        """Add commands to this call's entry; `committed` is called when they are applied."""

    def note(self, batch: Sequence[ConsumerCommand]) -> None:
        """Add commands whose commit no client waits for: to this call's entry, or to one a little later."""

    def set_hungry(self, name: str, *, is_hungry: bool) -> None:
        """Note whether the consumer waits for new messages; it has a runner that has not ended."""

    def abandon(self, name: str) -> None:
        """Propose the deletion of a consumer that no client used for its inactive_threshold."""

    def damaged(self, error: StoreCorrupt) -> None:
        """Note that a message cannot be read: the replica stops at the end of the turn, and is repaired."""
