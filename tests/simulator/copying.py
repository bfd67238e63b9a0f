"""One run of two groups: an origin and its copy, each with faults of its own, in one world (features/copying.py)."""

import contextlib

from jetraft.store.model.clock import NS_PER_S
from tests.simulator.features.copying import COPY, OWN_FROM, Copies, Origin, ShortOrigin, SourcedCopies
from tests.simulator.features.exchange import Exchange
from tests.simulator.repairing import file_work_at_once
from tests.simulator.run import FAULTS_NS, LAST_NS, Mode, Result, Simulation
from tests.simulator.world import MS, ViolationError, World

SETTLE_NS = 30 * NS_PER_S  # a consumer that is asked for in vain is asked for again after 10 s at most
LAST_WAY_NS = 300 * MS
LOST_AT_LAST = 0.3  # so that often nothing but a heartbeat can tell that something was lost
KINDS: dict[str, type[Copies]] = {"mirror": Copies, "source": SourcedCopies}


class CopySimulation:
    """One seed of one kind. Every third origin is one server, every fourth removes what is old."""

    def __init__(self, seed: int, kind: str) -> None:
        self.seed = seed
        self.world = World(seed)
        self._exchange = exchange = Exchange(self.world)
        removes = seed % 4 == 3
        of_origin = Mode(
            members=1 if seed % 3 == 2 else 3, checkpoint_entries=40, feature=ShortOrigin if removes else Origin
        )
        of_copy = Mode(feature=KINDS[kind], checkpoint_entries=40)
        self.origin = Simulation(seed, of_origin, world=self.world, exchange=exchange)
        self.copy = Simulation(seed, of_copy, world=self.world, exchange=exchange, first=OWN_FROM)
        assert isinstance(self.copy.feature, Copies)
        self.copy.feature.follow(self.origin.checker, removes=removes)
        exchange.join("S", list(self.origin.hosts.values()))
        exchange.join(COPY, list(self.copy.hosts.values()))

    def run(self) -> Result:
        """Play the seed."""
        problem, began_ns = None, self.world.now_ns
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(file_work_at_once())
                stack.enter_context(self.copy.feature.patches())
                stack.enter_context(self.copy.quiet())
                self._play()
                problem = self._judge()
        except ViolationError as violation:
            problem = f"violation: {violation}"
        return Result(
            seed=self.seed,
            problem=problem,
            counts=dict(self.world.counts),
            history=self.world.history,
            simulated_ns=self.world.now_ns - began_ns,
        )

    def _play(self) -> None:
        both, begin_ns = (self.origin, self.copy), self.world.now_ns
        for one in both:
            one.begin()
        self.world.run_until(begin_ns + FAULTS_NS)
        for one in both:
            one.heal()
        self.world.run_until(begin_ns + FAULTS_NS + LAST_NS)
        for one in both:
            one.publish_last()
        self._exchange.loss = LOST_AT_LAST
        self.world.run_until(begin_ns + FAULTS_NS + LAST_NS + LAST_WAY_NS)
        self._exchange.loss = 0
        self.world.run_until(begin_ns + FAULTS_NS + LAST_NS + SETTLE_NS)

    def _judge(self) -> str | None:
        for name, one in (("origin", self.origin), ("copy", self.copy)):
            problem = one.judge()
            if problem is not None:
                word, colon, rest = problem.partition(": ")
                return f"{word}{colon}{name}: {rest}"
        return None
