"""The servers from which a task may read. The planner finds them and passes them to the tasks.

The servers of the options come first, then those that the cluster reports (`connect_urls`). A server may have several
addresses, so servers are identified by `server_id`. Servers with a replica of the stream come before the others, which
would only forward the request. A server that does not answer is left out until the next survey.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import attrs

from pyspark_jetstream.client import Connection, ServerInfo
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.options import Access

# How long a survey is valid. Every trigger plans; a node that is added or removed is noticed within this time.
SURVEY_VALID_S = 10.0
PROBE_TIMEOUT_S = 1.0
PROBES_AT_ONCE = 8


@attrs.frozen(kw_only=True, slots=True)
class Server:
    """A server that answered."""

    url: str
    name: str
    has_replica: bool = False


class Directory:
    """The servers of the cluster, from a survey that is renewed after SURVEY_VALID_S."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._servers: tuple[Server, ...] = ()
        self._surveyed_at_s = float("-inf")

    def candidates(self, replicas: frozenset[str]) -> tuple[Server, ...]:
        """Return the servers to read from, those with a replica first; never empty.

        If none answers, they are the servers of the options: the tasks retry.
        """
        if time.monotonic() - self._surveyed_at_s > SURVEY_VALID_S or not self._servers:
            self._servers = survey(self._access)
            self._surveyed_at_s = time.monotonic()
        servers = [attrs.evolve(server, has_replica=server.name in replicas) for server in self._servers]
        servers.sort(key=lambda server: not server.has_replica)  # stable
        return tuple(servers) or tuple(Server(url=url, name=url) for url in self._access.servers)


def survey(access: Access) -> tuple[Server, ...]:
    """Connect to every known address at once; returns each server once, in the order of its first address.

    A reported address has no scheme. It is asked with that of the address whose server reported it: who demands TLS of
    a server demands it of those that it names. Others use TLS where their INFO says so, with either scheme.
    """
    found: dict[str, Server] = {}
    asked: set[str] = set()  # addresses, without a scheme
    waiting = list(access.servers)
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        while waiting:
            asked |= {urlsplit(url).netloc for url in waiting}
            infos = list(pool.map(lambda url: probe(url, access), waiting))
            reported: dict[str, str] = {}
            for url, info in zip(waiting, infos, strict=True):
                if info is not None:
                    found.setdefault(info.server_id, Server(url=url, name=info.server_name))
                    for address in info.connect_urls:
                        reported.setdefault(address, urlsplit(url).scheme)
            waiting = [f"{scheme}://{address}" for address, scheme in reported.items() if address not in asked]
    return tuple(found.values())


def probe(url: str, access: Access) -> ServerInfo | None:
    """Return the INFO of a server; None when it does not answer."""
    quick = attrs.evolve(access, connect_timeout_s=min(access.connect_timeout_s, PROBE_TIMEOUT_S))
    try:
        connection = Connection(url, quick)
    except ServerError:
        return None
    connection.close()
    return connection.info
