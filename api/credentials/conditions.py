"""When, from where and over what a user's token lets it connect. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs

from jetraft.api.credentials.claim_fields import TokenError, string, strings, tables
from jetraft.api.credentials.rules import CONNECTION_TYPES

NETWORKS_MAX: Final = 1000
LOCAL: Final = ""  # the server's own time zone


@attrs.frozen(slots=True)
class TimeRange:
    """A part of each day, from its start on, over midnight when it ends before it starts."""

    start: time
    end: time


@attrs.frozen(kw_only=True, slots=True)
class Conditions:
    """Conditions for a user that connects; empty: none. `kinds` is None for a list that is not there."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    times: tuple[TimeRange, ...] = ()
    zone: str = LOCAL
    kinds: frozenset[str] | None = None

    def admits_kind(self, kind: str) -> bool:
        """Whether a user may come over a connection of this kind. Unknown kinds of a list admit no user."""
        return self.kinds is None or kind in self.kinds

    def admits_address(self, ip: str) -> bool:
        """Whether it may come from this address."""
        if not self.networks:
            return True
        try:
            address = ip_address(ip)
        except ValueError:
            return False
        return any(address in network for network in self.networks)

    def open_until(self, now_s: float) -> float | None:
        """Until when (Unix time) the part of the day lasts that it is now; None: it may not connect; 0: no limit."""
        if not self.times:
            return 0.0
        zone: tzinfo | None = ZoneInfo(self.zone) if self.zone else None
        now = datetime.fromtimestamp(now_s, UTC).astimezone(zone)
        for span in self.times:
            start = now.replace(hour=span.start.hour, minute=span.start.minute, second=span.start.second, microsecond=0)
            end = now.replace(hour=span.end.hour, minute=span.end.minute, second=span.end.second, microsecond=0)
            if start > end:
                end += timedelta(days=1)
            if start < now < end:
                return end.timestamp()
        return None


ALWAYS: Final = Conditions()


def conditions_of(block: Mapping[str, Any]) -> Conditions:
    """`src`, `times`, `times_location` and `allowed_connection_types`. Raises TokenError."""
    kinds = [kind.upper() for kind in strings(block, "allowed_connection_types")]
    return Conditions(
        networks=_networks(block),
        times=tuple(TimeRange(_clock(item, "start"), _clock(item, "end")) for item in tables(block, "times")),
        zone=_zone(string(block, "times_location")),
        kinds=CONNECTION_TYPES.intersection(kinds) if kinds else None,
    )


def _networks(block: Mapping[str, Any]) -> tuple[IPv4Network | IPv6Network, ...]:
    """A list of networks, or a text with commas between them."""
    given = block.get("src")
    words = [word.strip() for word in given.split(",")] if isinstance(given, str) else list(strings(block, "src"))
    if isinstance(given, str):
        words = [word for word in words if word]
    if len(words) > NETWORKS_MAX:
        raise TokenError("the token has too many networks")
    try:
        if not all("/" in word for word in words):
            raise TokenError("invalid cidr in user src limits")
        return tuple(ip_network(word, strict=False) for word in words)
    except ValueError:
        raise TokenError("invalid cidr in user src limits") from None


def _clock(block: Mapping[str, Any], key: str) -> time:
    try:
        return datetime.strptime(string(block, key), "%H:%M:%S").time()  # noqa: DTZ007  of a day, not a moment
    except ValueError:
        raise TokenError(f"{key} in time range is invalid") from None


def _zone(name: str) -> str:
    try:
        if name:
            ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise TokenError("could not parse iana time zone by name") from None
    return name
