"""No node is kept out whose store was never put back, whatever the others have met and missed of it."""

import attrs
import hypothesis.strategies as st
from hypothesis import given, settings

from jetraft.raft.mesh.gossip import About
from jetraft.raft.mesh.handshake import Hello
from jetraft.raft.mesh.store_ages import StoreAges
from jetraft.store.model.files.store_age import STARTS_MAX, LedgerPlace, StoreAge, StoreStart
from jetraft.store.model.ids import node_id_of

NAMES = "abcd"
BEGINNING = LedgerPlace(1, 0)


@attrs.define
class Store:
    """A ledger as far as its age goes. Implements AgeKeeper; what is kept later than at once is lost by a restart."""

    numbers: list[int]  # random ones are drawn here
    ledger: int = 0
    starts: tuple[StoreStart, ...] = ()
    place: LedgerPlace = BEGINNING
    durable: bytes | None = None

    def _drawn(self) -> int:
        self.numbers.append(len(self.numbers) + 1)
        return self.numbers[-1]

    def begin(self) -> None:
        self.starts = (*self.starts, StoreStart(self._drawn(), self.place))[-STARTS_MAX:]
        self.write()

    def write(self) -> None:
        self.place = LedgerPlace(self.place.generation, self.place.record + 1)

    def rewrite(self) -> None:
        self.place = LedgerPlace(self.place.generation + 1, 1)

    def become_another(self) -> None:
        """Both copies are damaged, the newest start among them."""
        self.ledger, self.starts = self._drawn(), self.starts[:-1]
        self.rewrite()

    def begin_empty(self) -> None:
        self.ledger, self.starts, self.place, self.durable = self._drawn(), (), BEGINNING, None

    def own(self) -> StoreAge:
        return StoreAge(ledger=self.ledger, starts=self.starts, place=self.place)

    def load(self) -> bytes | None:
        return self.durable

    def keep(self, content: bytes, *, at_once: bool) -> None:
        if at_once:
            self.durable = content
            self.write()


class Town:
    """Four nodes, each of which may be started again and hear of each other one or not."""

    def __init__(self) -> None:
        numbers: list[int] = []
        self.stores = {name: Store(numbers) for name in NAMES}
        self.ages: dict[str, StoreAges] = {}
        self.now_ns = 0
        for name, store in self.stores.items():
            store.begin_empty()
            self.start(name)

    def start(self, name: str) -> None:
        self.stores[name].begin()
        self.ages[name] = StoreAges(node_id_of(name))
        self.ages[name].begin(self.stores[name])

    def say(self, speaker: str, hearer: str) -> None:
        self.now_ns += 1_000_000_000
        hello = Hello(cluster="C", node_id=node_id_of(speaker), name=speaker, boot=1, session=1, challenge=b"")
        about = self.ages[speaker].added_to(About(metadata={}, address=None, peers={}))
        assert self.ages[hearer].fit(hello, About.decode(about.encode(), ""), self.now_ns)


nodes = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.sampled_from(["write", "rewrite", "begin_empty", "become_another", "start"]), nodes),
    st.tuples(nodes, nodes),
    st.tuples(st.just("restarts"), nodes),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, max_size=60))
def test_no_node_is_kept_out_whose_store_only_went_forward(taken: list[tuple[str, str]]) -> None:
    town = Town()
    for what, name in taken:
        if what in NAMES:
            if what != name:
                town.say(what, name)
            continue
        if what == "restarts":  # while the others are away
            for _ in range(STARTS_MAX + 1):
                town.start(name)
        elif what != "start":
            getattr(town.stores[name], what)()
        if what not in {"write", "rewrite"}:
            town.start(name)
