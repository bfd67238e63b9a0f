"""The states of many streams by pages of STREAM.LIST, which cost a quarter of a question about each.

A page has PAGE streams in the order of their names, from any place on. So the places of the streams that a pattern
chose, among all names, say which pages have enough of them; the others, and those that a page turns out not to have
(streams came and went, or their leader was late), are asked for by name. The states in a page are those of the streams'
leaders, as an answer about one stream is. A user without the right to list costs one refused question.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import LoginRefusedError, ServersUnavailableError, StreamNotFoundError
from pyspark_jetstream.leader import Api, ApiRefusalError, StreamView, view_of
from pyspark_jetstream.options import Access
from pyspark_jetstream.typed.stream_schemas import KEY

LOG = logging.getLogger("pyspark_jetstream")

PAGE = 256  # of nats-server and jetraft
WANTED_MIN, WANTED_SHARE = 16, 4  # of a page, at least, and one in so many: then it costs less than a question each
PAGE_TIMEOUT_S = 6.0  # both servers wait 4 s for leaders that say nothing
RETRY_S = 0.5  # for the next server, where one is down; then each stream is asked for, with all patience
REFUSED = "permissions violation"


class Listing:
    """The lists of one query. It holds the places of the chosen streams, and no states."""

    def __init__(self, access: Access, connections: ConnectionCache, what: str) -> None:
        """`what` names the streams in messages."""
        self._api = Api(attrs.evolve(access, retry_timeout_s=RETRY_S), connections, what)
        self._places: dict[str, int] = {}
        self._count = 0
        self._is_refused = False

    def choose(self, names: Sequence[str], chosen: Iterable[str]) -> None:
        """Take note of the places of chosen names among all that the account has, in ascending order."""
        wanted = set(chosen)
        self._places = {name: place for place, name in enumerate(names) if name in wanted}
        self._count = len(names)

    def views(self, wanted: Iterable[str]) -> dict[str, StreamView]:
        """Return the present states of those of these streams that came in pages; others are to be asked for."""
        names = {name for name in wanted if name in self._places}
        found: dict[str, StreamView] = {}
        if self._is_refused:
            return found
        try:
            for offset in pages_of(sorted(self._places[name] for name in names), self._count):
                answer = self._api.ask("STREAM.LIST", {"offset": offset}, timeout_s=PAGE_TIMEOUT_S)
                found.update(listed(answer, names))
        except (ApiRefusalError, LoginRefusedError, ServersUnavailableError, StreamNotFoundError) as error:
            self._is_refused = REFUSED in str(error).lower()
            LOG.info("%s: not listed, each stream is asked for: %s", self._api.what, error)
        return found


def pages_of(places: Sequence[int], count: int) -> Iterator[int]:
    """Yield where the pages begin that have enough of these ascending places, of so many streams."""
    at = 0
    while at < len(places):
        behind = at
        while behind < len(places) and places[behind] < places[at] + PAGE:
            behind += 1
        size = min(PAGE, count - places[at])
        if behind - at >= max(WANTED_MIN, size // WANTED_SHARE):
            yield places[at]
        at = behind


def listed(answer: Mapping[str, Any], names: set[str]) -> Iterator[tuple[str, StreamView]]:
    """Yield the states of these streams in a page. Of a stream's metadata only schemas are kept."""
    for info in answer.get("streams") or ():
        config = info["config"]
        if config["name"] in names:
            metadata = {key: value for key, value in (config.get("metadata") or {}).items() if KEY.fullmatch(key)}
            yield config["name"], view_of({**info, "config": {**config, "metadata": metadata}})
