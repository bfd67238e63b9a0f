"""The leader of a group, as one member tells it to its state machine and to those who wait for an outcome.

A member that is elected leads (`term_led`) from then on, and begins to admit (`is_leader`) when everything before its
term is applied: only then its state is complete. When the term ends, all that wait get an outcome.
"""

from typing import TYPE_CHECKING

from jetraft.raft.changes import Change
from jetraft.raft.engine.messages import Role
from jetraft.raft.engine.ready import Standing
from jetraft.raft.machine import StateMachine
from jetraft.raft.proposals import Proposals

if TYPE_CHECKING:
    from jetraft.store.model.ids import NodeId


class Tenure:
    """The leadership of one group as seen by one member."""

    __slots__ = (
        "_machine",
        "_progress",
        "_proposals",
        "elections_won",
        "is_leader",
        "leader",
        "leader_since_ns",
        "term_led",
    )

    def __init__(self, machine: StateMachine, proposals: Proposals, progress: Change, now_ns: int) -> None:
        self._machine = machine
        self._proposals = proposals
        self._progress = progress
        self.leader: NodeId | None = None
        self.leader_since_ns = now_ns
        self.is_leader = False  # it leads, and its state is complete
        self.term_led = 0  # 0 while another member leads, or none
        self.elections_won = 0

    def observe(self, standing: Standing, now_ns: int) -> None:
        """Role, term or leader changed."""
        leads = standing.role is Role.LEADER
        if self.term_led and not (leads and standing.term == self.term_led):
            self.end()
            self._follow(standing, now_ns)
        if leads and not self.term_led:
            self.term_led = standing.term
            self.elections_won += 1
            self.leader, self.leader_since_ns = standing.leader, now_ns
        elif standing.leader != self.leader:
            self._follow(standing, now_ns)

    def _follow(self, standing: Standing, now_ns: int) -> None:
        self.leader, self.leader_since_ns = standing.leader, now_ns
        self._machine.became_follower(standing.term, standing.leader)

    def begin(self) -> None:
        """As elected leader: everything before this term is applied."""
        self.is_leader = True
        self._machine.became_leader(self.term_led)

    def end(self) -> None:
        """Leadership is over, if there was any: everything that waits for an outcome gets one."""
        self.term_led = 0
        self.is_leader = False
        self._progress.notify()
        self._proposals.end()

    def forget_leader(self, term: int) -> None:
        """This member takes no part any more: it knows of no leader."""
        self.leader = None
        self._machine.became_follower(term, None)
