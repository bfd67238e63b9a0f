"""Keys of nats-server 2.15 (server/opts.go) that are not served, by block. The top level has the empty name."""

from collections.abc import Mapping


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


NOT_SERVED: Mapping[str, frozenset[str]] = {}
