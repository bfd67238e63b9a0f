"""A node as the gateway of the API needs it, with JetStream or without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from jetraft.cluster.advisories import NodeAdvisories
    from jetraft.cluster.calls.forward import Forwarder
    from jetraft.cluster.requests.usage import ApiCounts


class ApiService(Protocol):
    """A node as taking requests needs it: who finds the owner, what is counted and told."""

    @property
    def forwarder(self) -> Forwarder:
        """Carries requests to their owners."""

    @property
    def usages(self) -> ApiUsages:
        """Counts."""

    @property
    def advisories(self) -> NodeAdvisories:
        """Tells audit events."""

    def identity_of(self, account: str, stream: str) -> str:
        """The mark that tells a stream from an earlier one of its name; empty when this node does not know."""


class ApiUsages(Protocol):
    """Counts requests."""

    @property
    def api(self) -> MutableMapping[str, ApiCounts]:
        """By account; an account that is new has an entry as soon as it is asked for."""
