"""The sums by node are always those that counting the table's rows again would give."""

from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.commands import Command, ReconfigureStream, RemoveStream
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.store.model.config import StorageType
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assign, config, entry

NODES = (N1, N2, N3)
names = st.sampled_from(["A", "B", "C"])
peers = st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True).map(tuple)
steps = st.lists(st.tuples(st.sampled_from(["create", "change", "remove"]), names, peers, st.integers(-1, 50)))


@given(steps)
def test_sums_follow_the_rows(plan: list[tuple[str, str, tuple[NodeId, ...], int]]) -> None:
    machine = MetaMachine()
    for index, (what, name, nodes, max_bytes) in enumerate(plan, 1):
        before = machine.table.get(StreamKey(ACCOUNT, name))
        machine.apply([entry(index, command(what, name, nodes, max_bytes, before))])
    rows = list(machine.table.streams.values())
    promised_load = machine.table.promised_load
    for node in NODES:
        held = [row for row in rows if node in row.peers]
        assert promised_load.replicas(node) == len(held)
        assert promised_load.replicated(node) == sum(len(row.peers) > 1 for row in held)
        assert promised_load.leaders(node) == sum(row.preferred == node for row in rows)
        promised = sum(max(0, row.config.max_bytes) for row in held)
        assert promised_load.promised_bytes(node, StorageType.FILE) == promised


def command(what: str, name: str, nodes: tuple[NodeId, ...], max_bytes: int, row: StreamAssignment | None) -> Command:
    incarnation, revision = (row.incarnation, row.revision) if row is not None else (1, 1)
    if what == "create":
        return assign(name, peers=nodes)
    if what == "remove":
        return RemoveStream(account=ACCOUNT, name=name, incarnation=incarnation)
    changed = config(name, max_bytes=max_bytes)
    return ReconfigureStream(account=ACCOUNT, incarnation=incarnation, config=changed, peers=nodes, based_on=revision)
