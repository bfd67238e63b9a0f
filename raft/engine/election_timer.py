"""When a member looks for a leader: one deadline, and what moves it. Both engines keep one. Pure.

Three rules are enforced here (rule 41):

- While its term and vote are not durable a member runs no timer. Nothing can be asked or promised before that, and a
  timer that fires throws the ballot away that the disk is busy with: with fsyncs slower than the timer there was never
  a leader. The wait begins when they are durable.
- Waits follow what the node measures (`Tempo`), and grow with each ballot that was lost.
- A claim is a lease. While a leader claims the group the deadline is its end, tens of seconds away; each word of the
  leader moves it on, for the price of storing one number. When it has passed the leader is doubted: a pre-vote, which
  changes nothing and which a living leader answers. Only when it does not is the claim given up.
"""

from typing import TYPE_CHECKING, Final

from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from jetraft.raft.engine.port import CoreSetup, Timing
    from jetraft.raft.engine.tempo import Tempo

DOUBLINGS_MAX: Final = 3  # after ballots that were lost: eight times the usual wait
WAIT_NS_MAX: Final = 30 * NS_PER_S  # however slow everything is


class ElectionTimer:
    """The deadline of one member of one group.

    `due_ns` is None for those who wait for events only: leaders, learners, and who has stopped.
    """

    __slots__ = (
        "_lease_ns",
        "_rng",
        "_stood_back",
        "_timing",
        "ballots",
        "due_ns",
        "heard_ns",
        "is_doubting",
        "pending_ns",
        "tempo",
    )

    def __init__(self, setup: "CoreSetup") -> None:
        self._timing: Timing = setup.timing
        self._rng = setup.rng
        self.tempo: Tempo = setup.tempo
        self.due_ns: int | None = None
        self.pending_ns: int | None = None  # since when term and vote are on their way to disk
        self.heard_ns = 0  # of the leader that claims the group
        self.is_doubting = False  # the lease has ended, and the leader was asked
        self.ballots = 0  # begun since a leader was known
        self._lease_ns = 0
        self._stood_back = False  # waited once for another candidate

    @property
    def deadline_ns(self) -> int | None:
        """When to look again; None while the disk is waited for."""
        return None if self.pending_ns is not None else self.due_ns

    # The disk.

    def promise(self, now_ns: int) -> None:
        """Term or vote were set: until they are durable no timer runs."""
        if self.pending_ns is None:
            self.pending_ns = now_ns

    def kept(self, now_ns: int) -> None:
        """They are durable."""
        assert self.pending_ns is not None
        self.tempo.disk.note(now_ns, now_ns - self.pending_ns)
        self.pending_ns = None

    # Waiting for a leader.

    def stop(self) -> None:
        """Wait for events only."""
        self.due_ns = None

    def wait(self, now_ns: int, *, is_reluctant: bool) -> None:
        """Give others, or its own ballot, a random while."""
        low_ns, high_ns = self._range(now_ns)
        self._arm(now_ns, low_ns, high_ns, is_reluctant=is_reluctant)

    def look_soon(self, now_ns: int, *, is_reluctant: bool, is_first: bool) -> None:
        """The leader is gone: look for another, not all members at the same moment; `is_first` goes before the rest."""
        spread_ns = self._timing.failover_spread_ns
        low_ns, high_ns = (0, spread_ns // 2) if is_first else (spread_ns, 2 * spread_ns)
        self._arm(now_ns, low_ns, high_ns, is_reluctant=is_reluctant)

    def look_now(self, now_ns: int) -> None:
        """There is no reason to let others go first."""
        if self.due_ns is not None:
            self.due_ns = min(self.due_ns, now_ns)

    def look_no_later(self, now_ns: int) -> None:
        """The same for who waits already."""
        soon_ns = now_ns + self._rng.randrange(0, self._timing.failover_spread_ns)
        self.due_ns = soon_ns if self.due_ns is None else min(soon_ns, self.due_ns)

    def wait_slowly(self, now_ns: int) -> None:
        """Nothing is expected to happen, but what told us so may be wrong."""
        self._arm(now_ns, self._timing.lease_min_ns, self._timing.lease_max_ns, is_reluctant=False)

    def stand_back(self, now_ns: int) -> None:
        """Another member has good chances: it may try first, once per wait, so it cannot hold this one off for long."""
        if self.due_ns is not None and not self._stood_back:
            self.due_ns = max(self.due_ns, now_ns + self.precedence_ns(now_ns, preliminary=True))
            self._stood_back = True

    def _arm(self, now_ns: int, low_ns: int, high_ns: int, *, is_reluctant: bool) -> None:
        self._stood_back = self.is_doubting = False
        begins_ns = now_ns + (self._timing.reluctance_ns if is_reluctant else 0)
        self.due_ns = begins_ns + self._rng.randrange(low_ns, high_ns)

    # What a leader's claim does.

    def claimed(self, now_ns: int) -> None:
        """A leader claims the group; all is well for a lease's time."""
        self.ballots = 0
        self.heard_ns, self.is_doubting = now_ns, False
        self._lease_ns = self._rng.randrange(self._timing.lease_min_ns, self._timing.lease_max_ns)
        self.due_ns = now_ns + self._lease_ns

    def may_rest(self, now_ns: int) -> bool:
        """At the deadline: whether the leader was heard meanwhile, so that the lease goes on."""
        assert self.due_ns is not None
        if self.heard_ns + self._lease_ns <= now_ns:
            return False
        self.due_ns = self.heard_ns + self._lease_ns
        return True

    def doubt(self, now_ns: int) -> None:
        """The leader has not been heard for a lease's time: it has as long as an election takes to answer."""
        self.is_doubting = True
        self.due_ns = now_ns + self._rng.randrange(*self._range(now_ns))

    # How long things take.

    def _range(self, now_ns: int) -> tuple[int, int]:
        """From and to, in nanoseconds: once to twice what a ballot takes, and more after ballots that were lost."""
        timing = self._timing
        lost = max(0, self.ballots - 1)
        low_ns = max(timing.election_min_ns, self.tempo.vote_ns(now_ns)) << min(lost, DOUBLINGS_MAX)
        low_ns = min(low_ns, WAIT_NS_MAX)
        return low_ns, low_ns * timing.election_max_ns // timing.election_min_ns

    def precedence_ns(self, now_ns: int, *, preliminary: bool) -> int:
        """For how long one of two that ask together goes first: the requests cross within a round trip.

        A real ballot goes first for as long as it takes.
        """
        crossing_ns = self.tempo.round_trip.read(now_ns) if preliminary else self.tempo.vote_ns(now_ns)
        return max(self._timing.precedence_ns, min(2 * crossing_ns, WAIT_NS_MAX))

    def retry_ns(self, now_ns: int, *, preliminary: bool, asked: int) -> int:
        """The pause before the next request to those who are silent; `asked` is how often they have been asked."""
        answer_ns = self.tempo.round_trip.read(now_ns) if preliminary else self.tempo.vote_ns(now_ns)
        return max(self._timing.vote_retry_ns, 2 * answer_ns) << min(asked - 1, DOUBLINGS_MAX)
