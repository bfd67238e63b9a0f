"""Limits of an account's clients and leaf nodes hold for the cluster: both servers, three nodes, tokens."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import attrs
import pytest

from jetraft.api.auth.cluster_limits import share_of
from jetraft.store.model.ids import NodeId
from tests.harness.cluster import Cluster
from tests.harness.leafs import RawLeaf
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import Line, RawClient
from tests.harness.server import Server
from tests.harness.tokens import TokenAccount, TokenOperator

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
OPERATOR: Final = TokenOperator()
SYSTEM: Final = OPERATOR.account("SYS")
ONE: Final = OPERATOR.account("ONE", limits={"conn": 1, "leaf": 1})
TWO: Final = OPERATOR.account("TWO", limits={"conn": 2})
FREE: Final = OPERATOR.account("FREE")
LOOK_S: Final = 0.05

Come = Callable[[Server, TokenAccount], RawClient]


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    config = OPERATOR.config(SYSTEM, ONE, TWO, FREE) + f'leafnodes {{ listen: "{HOST}:-1" }}\n'
    with Cluster(request.param, 3, directory=tmp_path, config=config) as found:
        yield found


@attrs.frozen(eq=False)
class Door:
    """Clients and leaf nodes that want in; all are closed with it."""

    cluster: Cluster
    opened: ExitStack

    def client(self, server: Server, account: TokenAccount) -> RawClient:
        """A client that has asked to come in."""
        client = self.opened.enter_context(closing(RawClient(server.address, connect=False)))
        login = {**account.user().login(client.info["nonce"]), "verbose": False}
        client.send(b"CONNECT " + json.dumps(login).encode() + b"\r\nPING\r\n")
        return client

    def leaf(self, server: Server, account: TokenAccount) -> RawClient:
        """A leaf node that has asked to come in."""
        leaf = self.opened.enter_context(closing(RawLeaf(server.get("/varz")[1]["leaf"]["port"])))
        login = {"name": "leaf", "cluster": f"L{server.name}", **account.user().login(leaf.info["nonce"])}
        leaf.send(b"CONNECT " + json.dumps(login).encode() + b"\r\nPING\r\n")
        return leaf

    def wait(self, come: Come, server: Server, account: TokenAccount) -> RawClient:
        """One that is let in, soon."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_in(found := come(server, account)):
            found.close()
            assert time.monotonic() < deadline, "none is let in"
            time.sleep(LOOK_S)
        return found

    def hold(self, come: Come, account: TokenAccount, *servers: Server) -> list[RawClient]:
        """Those that have the last places, and all nodes know it: of two that come at the same moment either stays."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [self.wait(come, server, account) for server in servers]
            running = [server for server in self.cluster.nodes if server.running.running]
            if all(self.is_refused(come, server, account, found) for server in running):
                return found
            for one in found:
                one.close()
            assert time.monotonic() < deadline, "nobody stays"

    def is_refused(self, come: Come, server: Server, account: TokenAccount, held: list[RawClient]) -> bool:
        """Whether a server refuses another one, be it soon, while all of these stay."""
        while is_in(found := come(server, account)):
            found.close()
            if not all(stays(one) for one in held):
                return False
        found.close()
        return all(stays(one) for one in held)


def is_in(comer: RawClient) -> bool:
    """Whether one was let in."""
    while (event := comer.next_event(PATIENCE_S)) is not None:
        if isinstance(event, Line) and event.text.startswith(("PONG", "-ERR")):
            return event.text == "PONG"
    return False


def stays(comer: RawClient) -> bool:
    """Whether one is not sent away."""
    comer.rest(LOOK_S)
    return not comer.closed


@pytest.fixture
def door(cluster: Cluster) -> Iterator[Door]:
    with ExitStack() as opened:
        yield Door(cluster, opened)


def test_of_three_clients_at_three_nodes_one_is_in(door: Door) -> None:
    first, *others = door.cluster.nodes
    [one] = door.hold(door.client, ONE, first)
    one.close()
    for node in others:  # each other node has the place, when it is free
        door.wait(door.client, node, ONE).close()


def test_a_limit_counts_clients_of_all_nodes_and_of_its_account_alone(door: Door) -> None:
    first, second, third = door.cluster.nodes
    held = door.hold(door.client, TWO, first, second)
    free = [door.client(node, FREE) for node in door.cluster.nodes for _ in range(3)]
    assert all(is_in(client) for client in free)
    assert all(stays(client) for client in held)
    held[0].close()
    assert stays(door.wait(door.client, third, TWO))


def test_of_clients_that_come_at_once_no_more_stay_than_may(door: Door) -> None:
    if door.cluster.kind == "reference":
        pytest.skip("its servers may each close theirs, so that none is left")
    comers = [door.client(node, TWO) for node in door.cluster.nodes for _ in range(2)]
    deadline = time.monotonic() + PATIENCE_S
    while (staying := sum(stays(comer) for comer in comers)) != 2:
        assert time.monotonic() < deadline, staying
    assert not is_in(door.client(door.cluster.nodes[0], TWO))


def test_what_a_lost_node_had_is_free_again(door: Door) -> None:
    if door.cluster.kind == "reference":
        pytest.skip("its servers count for minutes what a lost one had")
    first, second, third = door.cluster.nodes
    door.hold(door.client, ONE, first)
    first.kill()
    [one] = door.hold(door.client, ONE, second)
    one.close()
    first.start()
    door.hold(door.client, ONE, third)  # the one that came back hears of it, too


def test_of_three_leaf_nodes_at_three_nodes_one_is_in(door: Door) -> None:
    first, *others = door.cluster.nodes
    [leaf] = door.hold(door.leaf, ONE, first)
    assert stays(door.wait(door.client, others[0], ONE))  # clients have places of their own
    leaf.close()
    door.wait(door.leaf, others[1], ONE)


@pytest.mark.parametrize(
    ("surplus", "at_nodes", "closed"),  # of each node: those that came just now, and the others
    [
        (1, {"a": (1, 0), "b": (0, 1)}, {"a": 1, "b": 0}),  # who was there stays
        (1, {"a": (1, 0), "b": (1, 0)}, {"a": 0, "b": 1}),  # of two that came together one stays
        (1, {"a": (0, 2), "b": (0, 2)}, {"a": 0, "b": 1}),  # they meet again
        (3, {"a": (1, 2), "b": (1, 2)}, {"a": 1, "b": 2}),
        (9, {"a": (1, 1), "b": (0, 1)}, {"a": 2, "b": 1}),
    ],
)
def test_all_nodes_find_out_the_same_of_a_surplus(
    surplus: int, at_nodes: dict[str, tuple[int, int]], closed: dict[str, int]
) -> None:
    counts = {NodeId(node): count for node, count in at_nodes.items()}
    assert {str(node): share_of(node, surplus, counts) for node in counts} == closed
