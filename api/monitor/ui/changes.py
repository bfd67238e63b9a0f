"""Changes between two looks at streams and nodes: the events that the dashboard tells. Pure.

A look is of one stream, so that a long list is looked at a part at a time. Items that a look has not found by the end
of a round are gone. The first round tells nothing: all that it finds was there.
"""

from typing import Any, Final

import attrs

NOTHING: Final = ""


@attrs.frozen(kw_only=True, slots=True)
class Glance:
    """A stream, or the meta group, as this node sees it at a moment. Empty names: none."""

    account: str
    stream: str
    leader: str = NOTHING
    term: int = 0
    offline: tuple[
        str, ...
    ] = ()  # nodes that cannot be reached, of the meta group only: all streams of a node have one
    failed: str = NOTHING  # why the log of the replica here has failed


@attrs.define(eq=False)
class Changes:
    """The glances of the last round, by account and stream."""

    _known: dict[tuple[str, str], Glance] = attrs.field(factory=dict)
    _found: set[tuple[str, str]] = attrs.field(factory=set)
    _is_first: bool = True

    def look(self, seen: Glance) -> list[dict[str, Any]]:
        """The changes of a stream since its last glance."""
        key = seen.account, seen.stream
        before = self._known.get(key)
        self._known[key] = seen
        self._found.add(key)
        if before is None:
            return [] if self._is_first else [event("stream_added", seen, leader=seen.leader)]
        return [] if before == seen else list(_between(before, seen))

    def end_round(self) -> list[dict[str, Any]]:
        """Every stream was looked at: what has gone since the last round."""
        gone = [self._known.pop(key) for key in sorted(self._known.keys() - self._found)]
        self._found.clear()
        self._is_first = False
        return [event("stream_gone", glance) for glance in gone]


def event(what: str, about: Glance, **more: Any) -> dict[str, Any]:
    """One event."""
    return {"what": what, "account": about.account, "stream": about.stream, **more}


def _between(before: Glance, seen: Glance) -> list[dict[str, Any]]:
    found = []
    if seen.leader != before.leader:
        what = "leader_changed" if seen.leader else "leader_lost"
        found.append(event(what, seen, leader=seen.leader, before=before.leader, term=seen.term))
    elif seen.term != before.term and seen.leader:
        found.append(event("leader_elected_again", seen, leader=seen.leader, term=seen.term))
    found += [event("node_offline", seen, node=node) for node in seen.offline if node not in before.offline]
    found += [event("node_online", seen, node=node) for node in before.offline if node not in seen.offline]
    if seen.failed and not before.failed:
        found.append(event("log_failed", seen, reason=seen.failed))
    return found
