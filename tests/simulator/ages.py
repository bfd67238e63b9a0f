"""When messages leave, judged by the time that has passed in the world, whatever the nodes' wall clocks say.

A run draws how long its messages last: a moment, so that what stays too long is seen, or far longer than the run and
shorter than a clock is set wrong, so that what leaves too early is. Some messages have a TTL of their own. The window
of duplicates is shorter than that too, and longer than any retry: an id that is forgotten is stored twice.
"""

from collections.abc import Mapping

import attrs

from jetraft.cluster.state import commands
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.config import RetentionPolicy, StreamConfig
from tests.simulator.world import MS, ViolationError, World

LONG_NS = 1800 * NS_PER_S
SHORT_NS = 2 * NS_PER_S
TTL_S = 1
EARLY_PART = 20  # a clock runs slower or faster by 1 %, and two may
EARLY_NS = 100 * MS  # what the network adds to what is heard of a clock, at a start and at the next one
LATE_NS = 2500 * MS  # from the last leader that can be, expiry works in rounds


class Ages:
    """The memory of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.gone: set[int] = set()  # sequences that have left
        self._max_age_ns = world.rng.choice((LONG_NS, SHORT_NS))
        self._published_ns: dict[int, int] = {}  # by number: when it was sent for the first time
        self._knows_time = True  # the leader
        self._excused: set[int] = set()  # may leave early
        self._with_ttl: set[int] = set()
        self._committed: dict[int, tuple[int, int]] = {}  # by sequence: its number, and when it was seen

    def configure(self, config: StreamConfig) -> StreamConfig:
        """The stream of the run."""
        return attrs.evolve(
            config,
            retention=RetentionPolicy.LIMITS,
            max_msgs=-1,
            max_age=self._max_age_ns,
            allow_msg_ttl=True,
            duplicate_window=LONG_NS,
        )

    def on_publish(self, number: int, hdr: bytes) -> bytes:
        """A message is sent; returns its header block."""
        self._published_ns.setdefault(number, self._world.now_ns)
        if not self._knows_time:
            self._excused.add(number)
        if number % 4 or hdr:
            return hdr
        self._with_ttl.add(number)
        return b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % TTL_S

    def on_message(self, seq: int, payload: bytes) -> None:
        """A message is committed."""
        self._committed[seq] = int(payload.split()[1]), self._world.now_ns

    def on_removal(self, command: commands.StreamCommand) -> None:
        """The leader has decided that these are too old."""
        if isinstance(command, commands.RemoveBelow):
            gone = [seq for seq in self._committed if seq < command.seq]
        elif isinstance(command, commands.Remove):
            gone = [seq for seq in command.seqs if seq in self._committed]
        else:
            return
        for seq in gone:
            number, _ = self._committed.pop(seq)
            self.gone.add(seq)
            age_ns, life_ns = self._world.now_ns - self._published_ns[number], self._life_ns(number)
            if number not in self._excused and age_ns < life_ns - life_ns // EARLY_PART - EARLY_NS:
                raise ViolationError(f"message {number} leaves after {age_ns / MS:.0f} of {life_ns / MS:.0f} ms")
            self._world.counts["expired"] += 1

    def on_leader(self, *, knows_time: bool) -> None:
        """A node leads; one that has not heard of the time does not know what passed before.

        It takes the earliest clock that it knows, and the log's time goes on when that is later. What it lacks the next
        leader makes up for: what is there until then may leave early by it.
        """
        self._knows_time = knows_time
        if not knows_time:
            self._world.counts["leaders without time"] += 1
            self._excused |= self._published_ns.keys()

    def judge(self, live: Mapping[int, bytes]) -> None:
        """Nothing is left that should have gone."""
        for seq in live:
            number, since_ns = self._committed[seq]
            age_ns, life_ns = self._world.now_ns - since_ns, self._life_ns(number)
            if age_ns > life_ns + life_ns // EARLY_PART + LATE_NS:
                raise ViolationError(f"message {number} of {life_ns / MS:.0f} ms is there after {age_ns / MS:.0f}")

    def _life_ns(self, number: int) -> int:
        ttl_ns = TTL_S * NS_PER_S if number in self._with_ttl else LONG_NS
        return min(ttl_ns, self._max_age_ns)
