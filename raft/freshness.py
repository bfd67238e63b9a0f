"""How old what a member has applied can be, by what its leader has told it. Pure.

A member is fresh when it leads with its state complete, or when its leader claims the group in the present link session
and everything that this leader has told to be committed is applied. Until that was the case once, in the life of this
object, a read would miss what was acknowledged long ago: the member has restarted from a checkpoint, is being filled,
or was wiped. Afterwards the member stays readable for READ_GRACE_NS beyond the last moment at which it was fresh: an
election takes a moment, and a member that is a few entries behind has the others of a moment ago.

News of a leader costs no message of its own: every append and every commit notice carries it, also the empty append
by which a new leader looks for where a log ends, and a leader whose state is not complete tells nothing.
"""

from collections.abc import Callable
from typing import Final

from jetraft.store.model.clock import NS_PER_S

# A leader is found in 2 s (p99, docs/raft.md) after 1.25 s of silence; a replica that was current serves on meanwhile.
READ_GRACE_NS: Final = 5 * NS_PER_S
# Every get that a replica answers sees what was acknowledged so long ago: the grace, and before it the time that passes
# until the loss of contact is noticed. The link's silence (1.25 s, raft/mesh/peers.py) is noticed by a leader that is
# cut off together with this member, and it gives up after its own look at its quorum (1 s, Timing).
STALENESS_MAX_NS: Final = 10 * NS_PER_S
ENDLESS_NS: Final = 1 << 62  # on the monotonic clock: for as long as nothing happens


class Freshness:
    """One member's knowledge of its own age; `note` is called after every event of the group."""

    __slots__ = ("_is_led", "_on_news", "_target_index", "_target_ns", "until_ns")

    def __init__(self, on_news: Callable[[], None] = lambda: None) -> None:
        """`on_news` hears when reads are allowed again, and when they end soon, as no leader is heard."""
        self._on_news = on_news
        self.until_ns = 0  # reads may be answered up to this moment; 0 before the first
        self._is_led = False  # some leader says how far it is, or this member leads
        self._target_index = 0  # what a leader had told to be committed at `_target_ns`; 0: nothing is waited for
        self._target_ns = 0

    def note(self, *, is_leader: bool, told_index: int | None, applied_index: int, now_ns: int) -> None:
        """Count what is known now. `told_index` is of the leader that claims the group: 0 or None when none says it."""
        before_ns, was_led = self.until_ns, self._is_led
        self._is_led = is_leader or bool(told_index)
        if is_leader or (told_index and applied_index >= told_index):
            self.until_ns, self._target_index = ENDLESS_NS, 0
        else:
            if before_ns == ENDLESS_NS:  # it had everything until just now
                self.until_ns = now_ns + READ_GRACE_NS
            self._aim(told_index or 0, applied_index, now_ns)
        is_back = before_ns < now_ns <= self.until_ns
        if is_back or (was_led and not self._is_led and now_ns <= self.until_ns):
            self._on_news()

    def _aim(self, told_index: int, applied_index: int, now_ns: int) -> None:
        """An index committed at some moment is to be reached: when it is, the state here is as old as that moment."""
        if told_index and applied_index < self._target_index:
            return
        if told_index and self._target_index:
            self.until_ns = max(self.until_ns, self._target_ns + READ_GRACE_NS)
        self._target_index, self._target_ns = told_index, now_ns

    def void(self) -> None:
        """The member takes no part any more: nothing it has is current."""
        self.until_ns = 0
