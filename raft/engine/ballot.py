"""Counting votes: who granted in one term, and whether that is a quorum.

Votes are a set of member names, so one voter delivered twice counts once, and a vote of a node outside the
configuration counts never (rule 17). Requests are repeated to those who are silent: a peer may create its replica of a
new group a moment after the candidate asked.
"""

from jetraft.raft.engine.membership import Configuration
from jetraft.store.model.ids import NodeId


class Ballot:
    """One election round, real or preliminary, of one candidate."""

    __slots__ = ("_granted", "asked", "asked_ns", "began_ns", "preliminary", "resend_ns", "term", "transfer")

    def __init__(self, *, term: int, preliminary: bool, transfer: bool, now_ns: int, asked: int = 0) -> None:
        self.term = term
        self.preliminary = preliminary
        self.transfer = transfer
        self.began_ns = now_ns
        self.asked = asked  # how often
        self.asked_ns = self.resend_ns = now_ns  # for the last time; and when again
        self._granted: set[NodeId] = set()

    def ask(self, now_ns: int, pause_ns: int) -> None:
        """The silent voters are asked now; not again before the pause is over."""
        self.asked += 1
        self.asked_ns, self.resend_ns = now_ns, now_ns + pause_ns

    def grant(self, voter: NodeId) -> None:
        """The voter said yes; saying it again changes nothing."""
        self._granted.add(voter)

    def is_won(self, configuration: Configuration) -> bool:
        """Whether a majority of the voters of the configuration in force granted."""
        return configuration.has_quorum(self._granted)

    def silent(self, configuration: Configuration) -> list[NodeId]:
        """The voters that did not grant, in a fixed order: whom to ask (again)."""
        return [voter for voter in configuration.voters if voter not in self._granted]
