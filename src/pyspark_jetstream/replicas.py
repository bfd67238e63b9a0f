"""Which servers a task may read from: found out by the planner, handed to the tasks with their ranges.

The servers of the options come first, then those that the cluster reports (`connect_urls`). One server may be reachable
under several addresses, so they are told apart by `server_id`. Servers that hold a replica of the stream come before
those that do not: the latter would only pass the request on. A server that does not answer now is left out, and looked
for again soon.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import attrs

from pyspark_jetstream.client import Connection, ServerInfo
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.options import Access

# How long a survey holds. Planning happens every trigger; a node that comes or goes is noticed within this time.
SURVEY_HOLDS_S = 10.0
PROBE_TIMEOUT_S = 1.0
PROBES_AT_ONCE = 8


@attrs.frozen(kw_only=True, slots=True)
class Server:
    """A server that answered."""

    url: str
    name: str
    has_replica: bool = False


class Directory:
    """The servers of the cluster, surveyed when needed."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._servers: tuple[Server, ...] = ()
        self._surveyed_at_s = float("-inf")

    def candidates(self, replicas: frozenset[str]) -> tuple[Server, ...]:
        """Return the servers to read from, those with a replica first; never empty.

        When none answers, the servers of the options are returned: the tasks go on trying.
        """
        if time.monotonic() - self._surveyed_at_s > SURVEY_HOLDS_S or not self._servers:
            self._servers = survey(self._access)
            self._surveyed_at_s = time.monotonic()
        servers = [attrs.evolve(server, has_replica=server.name in replicas) for server in self._servers]
        servers.sort(key=lambda server: not server.has_replica)  # stable
        return tuple(servers) or tuple(Server(url=url, name=url) for url in self._access.servers)


def survey(access: Access) -> tuple[Server, ...]:
    """Ask every known address who is there, at once; each server is listed once, in the order of its first address."""
    found: dict[str, Server] = {}
    asked: set[str] = set()
    waiting = list(access.servers)
    scheme = urlsplit(access.servers[0]).scheme
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        while waiting:
            asked |= set(waiting)
            infos = list(pool.map(lambda url: probe(url, access), waiting))
            reported: dict[str, None] = {}
            for url, info in zip(waiting, infos, strict=True):
                if info is not None:
                    found.setdefault(info.server_id, Server(url=url, name=info.server_name))
                    reported |= dict.fromkeys(f"{scheme}://{address}" for address in info.connect_urls)
            waiting = [url for url in reported if url not in asked]
    return tuple(found.values())


def probe(url: str, access: Access) -> ServerInfo | None:
    """Return what the server says about itself, None when it does not answer."""
    quick = attrs.evolve(access, connect_timeout_s=min(access.connect_timeout_s, PROBE_TIMEOUT_S))
    try:
        connection = Connection(url, quick)
    except ServerError:
        return None
    connection.close()
    return connection.info
