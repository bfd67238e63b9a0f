"""One frame of `jetraft top`: two samples of all servers' pages become rows, the busiest and slowest first.

It reads nothing itself: samples come in, rows go out. Rates are differences of two samples; what is new in the second
one has none.
"""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from jetraft.api.cli.client.streams import replica_text
from jetraft.api.cli.client.system_pages import ServerPage
from jetraft.api.cli.client.units import shown_count, shown_size

Key = tuple[str, ...]
BEHIND: Final = "behind: "


@attrs.frozen(kw_only=True)
class Sample:
    """All servers at a moment."""

    at_s: float  # of a clock that runs steadily
    servers: dict[Key, dict[str, Any]]  # by name: VARZ
    streams: dict[Key, dict[str, Any]]  # by account and name, of the leader's JSZ
    consumers: dict[Key, dict[str, Any]]  # by account, stream and name
    connections: dict[Key, dict[str, Any]]  # by server and cid


def sample_of(
    at_s: float, varz: Sequence[ServerPage], jsz: Sequence[ServerPage], connz: Sequence[ServerPage]
) -> Sample:
    """A sample of the pages."""
    streams: dict[Key, dict[str, Any]] = {}
    consumers: dict[Key, dict[str, Any]] = {}
    for page in jsz:
        for account in page.data.get("account_details") or ():
            for stream in account.get("stream_detail") or ():
                if (stream.get("cluster") or {}).get("leader", page.name) != page.name:
                    continue  # a follower's page lags
                key = (str(account["name"]), str(stream["name"]))
                streams[key] = stream
                for consumer in stream.get("consumer_detail") or ():
                    consumers[*key, str(consumer["name"])] = consumer
    return Sample(
        at_s=at_s,
        servers={(page.name,): page.data for page in varz},
        streams=streams,
        consumers=consumers,
        connections={
            (page.name, str(each["cid"])): each for page in connz for each in page.data.get("connections") or ()
        },
    )


@attrs.frozen(kw_only=True)
class Section:
    """A table of a frame: its rows for people, and the same for programs."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    data: tuple[dict[str, Any], ...]
    empty: str


@attrs.frozen(kw_only=True)
class Frames:
    """Two samples, of which the later one is shown."""

    before: Sample
    now: Sample

    def _rate(self, kind: str, key: Key, *path: str) -> float | None:
        """How much a counter grows in a second; None where it is new or began again."""
        elapsed_s = self.now.at_s - self.before.at_s
        first, last = (_at(getattr(sample, kind).get(key), path) for sample in (self.before, self.now))
        if first is None or last is None or last < first or elapsed_s <= 0:
            return None
        return (last - first) / elapsed_s

    def sections(self, rows: int) -> tuple[Section, ...]:
        """All of them; of all but the servers `rows` at most."""
        return (self.servers(), self.streams(rows), self.consumers(rows), self.connections(rows))

    def servers(self) -> Section:
        """Every server, by name."""
        data = [
            {
                "server": key[0],
                "connections": page.get("connections"),
                "memory": page.get("mem"),
                "cpu": page.get("cpu"),
                "in_msgs_per_s": self._rate("servers", key, "in_msgs"),
                "out_msgs_per_s": self._rate("servers", key, "out_msgs"),
                "in_bytes_per_s": self._rate("servers", key, "in_bytes"),
                "out_bytes_per_s": self._rate("servers", key, "out_bytes"),
                "slow_consumers": page.get("slow_consumers"),
                "streams_led": sum((each.get("cluster") or {}).get("leader") == key[0] for each in self._streams()),
                "up": page.get("uptime"),
            }
            for key, page in sorted(self.now.servers.items())
        ]
        return Section(
            title="Servers",
            columns=(
                "name",
                ">conns",
                ">memory",
                ">cpu %",
                ">in/s",
                ">out/s",
                ">bytes in",
                ">out",
                ">slow",
                ">leads",
                "up",
            ),
            rows=tuple(
                (
                    each["server"],
                    shown_count(each["connections"]),
                    shown_size(each["memory"]),
                    each["cpu"],
                    per_s(each["in_msgs_per_s"]),
                    per_s(each["out_msgs_per_s"]),
                    bytes_per_s(each["in_bytes_per_s"]),
                    bytes_per_s(each["out_bytes_per_s"]),
                    shown_count(each["slow_consumers"]),
                    shown_count(each["streams_led"]),
                    each["up"],
                )
                for each in data
            ),
            data=tuple(data),
            empty="no server",
        )

    def _streams(self) -> list[dict[str, Any]]:
        return list(self.now.streams.values())

    def streams(self, rows: int) -> Section:
        """Those that grow fastest, then the largest."""
        data = [
            {
                "account": key[0],
                "stream": key[1],
                "messages": stream["state"]["messages"],
                "bytes": stream["state"]["bytes"],
                "msgs_per_s": self._rate("streams", key, "state", "last_seq"),
                "consumers": stream["state"]["consumer_count"],
                "leader": (stream.get("cluster") or {}).get("leader", ""),
                "behind": [
                    replica_text(each)
                    for each in (stream.get("cluster") or {}).get("replicas") or ()
                    if each.get("offline") or not each.get("current")
                ],
            }
            for key, stream in self.now.streams.items()
        ]
        data.sort(key=lambda each: (-(each["msgs_per_s"] or 0), -each["messages"], each["account"], each["stream"]))
        return Section(
            title=f"Streams ({len(data):,}), the busiest first",
            columns=("account", "stream", ">msgs/s", ">messages", ">size", ">consumers", "leader", "replicas behind"),
            rows=tuple(
                (
                    each["account"],
                    each["stream"],
                    per_s(each["msgs_per_s"]),
                    shown_count(each["messages"]),
                    shown_size(each["bytes"]),
                    shown_count(each["consumers"]),
                    each["leader"],
                    ", ".join(each["behind"]),
                )
                for each in data[:rows]
            ),
            data=tuple(data[:rows]),
            empty="no stream",
        )

    def consumers(self, rows: int) -> Section:
        """Those that have something to do, the furthest behind first."""
        data = [
            {
                "account": key[0],
                "stream": key[1],
                "consumer": key[2],
                "num_pending": consumer["num_pending"],
                "num_ack_pending": consumer["num_ack_pending"],
                "num_redelivered": consumer["num_redelivered"],
                "num_waiting": consumer.get("num_waiting", 0),
                "deliveries_per_s": self._rate("consumers", key, "delivered", "consumer_seq"),
            }
            for key, consumer in self.now.consumers.items()
            if consumer["num_pending"] or consumer["num_ack_pending"]
        ]
        data.sort(key=lambda each: (-each["num_pending"], -each["num_ack_pending"], each["stream"], each["consumer"]))
        return Section(
            title=f"Consumers that lag ({len(data):,})",
            columns=(
                "account",
                "stream",
                "consumer",
                ">not delivered",
                ">unacked",
                ">redelivered",
                ">waiting",
                ">deliveries/s",
            ),
            rows=tuple(
                (
                    *(each[name] for name in ("account", "stream", "consumer")),
                    *(shown_count(each[name]) for name in ("num_pending", "num_ack_pending", "num_redelivered")),
                    shown_count(each["num_waiting"]),
                    per_s(each["deliveries_per_s"]),
                )
                for each in data[:rows]
            ),
            data=tuple(data[:rows]),
            empty="no consumer lags",
        )

    def connections(self, rows: int) -> Section:
        """Those to which most bytes wait to be sent, then the busiest."""
        data = [
            {
                "server": key[0],
                "cid": int(key[1]),
                "name": each.get("name", ""),
                "account": each.get("account", ""),
                "host": f"{each.get('ip')}:{each.get('port')}",
                "pending_bytes": each.get("pending_bytes", 0),
                "rtt": each.get("rtt", ""),
                "in_msgs_per_s": self._rate("connections", key, "in_msgs"),
                "out_msgs_per_s": self._rate("connections", key, "out_msgs"),
            }
            for key, each in self.now.connections.items()
        ]
        data.sort(
            key=lambda each: (
                -each["pending_bytes"],
                -(each["out_msgs_per_s"] or 0) - (each["in_msgs_per_s"] or 0),
                each["server"],
                each["cid"],
            )
        )
        return Section(
            title="Connections, those with most to send first",
            columns=("server", ">cid", "name", "account", "host", ">waits", ">rtt", ">in/s", ">out/s"),
            rows=tuple(
                (
                    *(each[name] for name in ("server", "cid", "name", "account", "host")),
                    shown_size(each["pending_bytes"]),
                    each["rtt"],
                    per_s(each["in_msgs_per_s"]),
                    per_s(each["out_msgs_per_s"]),
                )
                for each in data[:rows]
            ),
            data=tuple(data[:rows]),
            empty="no connection",
        )

    def as_json(self, rows: int) -> dict[str, Any]:
        """The stable form."""
        names = ("servers", "streams", "consumers", "connections")
        return {name: list(each.data) for name, each in zip(names, self.sections(rows), strict=True)}


def _at(page: object, path: tuple[str, ...]) -> float | None:
    """The number at a path of keys."""
    for key in path:
        page = page.get(key) if isinstance(page, dict) else None
    return page if isinstance(page, int | float) else None


def per_s(rate: float | None) -> str:
    """A rate of things."""
    return "-" if rate is None else shown_count(round(rate)) if rate >= 10 or not rate else f"{rate:.1f}"  # noqa: PLR2004


def bytes_per_s(rate: float | None) -> str:
    """A rate of bytes."""
    return "-" if rate is None else f"{shown_size(round(rate))}/s"
