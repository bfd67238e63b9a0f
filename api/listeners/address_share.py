"""Connections of a listener that has few places: so many in all, and not all of them of one address.

For HTTP, where requests name a user and a connection does not: what exceeds the bound is closed at once, as clients of
HTTP connect again by themselves.
"""

from typing import Final

import attrs

from jetraft.api.options.interfaces import payer_of

CONNECTIONS_MAX: Final = 256  # each has buffers of HTTP, of TLS, and a task: some 100 KiB
PER_ADDRESS_MAX: Final = 192  # of those; a proxy in front of the server is one address, so it is most of them


@attrs.define(eq=False)
class AddressShare:
    """The holders of places."""

    places: int = CONNECTIONS_MAX
    per_address_max: int = PER_ADDRESS_MAX
    refused: int = 0
    _counts: dict[str, int] = attrs.field(factory=dict)
    _taken: int = 0

    def take(self, ip: str) -> bool:
        """Take a place for a connection of this address; False when there is none for it."""
        ip = payer_of(ip)
        count = self._counts.get(ip, 0)
        if self._taken >= self.places or count >= self.per_address_max:
            self.refused += 1
            return False
        self._counts[ip] = count + 1
        self._taken += 1
        return True

    def give_back(self, ip: str) -> None:
        """A connection that had a place is closed."""
        ip = payer_of(ip)
        self._taken -= 1
        if self._counts[ip] > 1:
            self._counts[ip] -= 1
        else:
            del self._counts[ip]

    def statistics(self) -> dict[str, int]:
        """Open connections, and those for which there was no place."""
        return {"open": self._taken, "refused": self.refused}
