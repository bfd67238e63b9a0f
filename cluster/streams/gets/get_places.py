"""Places for direct gets that wait on a replica: bounded in number and bytes, and no connection has them all.

A request that another node has passed on names no connection. Such requests have places together, and leave some to
the connections of this node.
"""

from __future__ import annotations

from typing import Final

PLACES_MAX: Final = 1024  # requests, of one replica
BYTES_MAX: Final = 1 << 20  # of all their bytes
CLIENT_SHARE: Final = 4  # a connection has a quarter of both, as of batches (direct.py: CLIENT_BATCHES_MAX)
ELSEWHERE: Final = 0  # the origin of a request that came from another node


class GetPlaces:
    """The places of one replica, and how many of them each client has."""

    __slots__ = ("_bytes", "_count", "_of_client")

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0
        self._of_client: dict[int, tuple[int, int]] = {}  # requests and bytes of connections that have some

    def __len__(self) -> int:
        """How many are taken."""
        return self._count

    def take(self, client: int, size: int) -> bool:
        """Take a place for a request of so many bytes; False when there is none for this connection."""
        count, size_of_client = self._of_client.get(client, (0, 0))
        shares = CLIENT_SHARE - 1 if client == ELSEWHERE else 1
        if self._count >= PLACES_MAX or count >= PLACES_MAX * shares // CLIENT_SHARE:
            return False
        if self._bytes + size > BYTES_MAX or size_of_client + size > BYTES_MAX * shares // CLIENT_SHARE:
            return False
        self._count += 1
        self._bytes += size
        self._of_client[client] = count + 1, size_of_client + size
        return True

    def give_back(self, client: int, size: int) -> None:
        """A request waits no more."""
        count, size_of_client = self._of_client[client]
        self._count -= 1
        self._bytes -= size
        if count > 1:
            self._of_client[client] = count - 1, size_of_client - size
        else:
            del self._of_client[client]

    def clear(self) -> None:
        """None waits."""
        self._count = self._bytes = 0
        self._of_client.clear()
