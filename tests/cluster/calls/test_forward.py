"""A request reaches its owner, is carried out once, and is answered once."""

from collections.abc import Awaitable, Callable, Container, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.calls.forward import OWNER_WAIT_S, AnswerLost, Forwarder, Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model.errors import ApiError
from jetraft.store.model.ids import NodeId

A, B, C = (NodeId(name) for name in "ABC")


def request(*, repeatable: bool = False) -> ForwardedRequest:
    return ForwardedRequest(
        account="$G", owner=Owner.META, stream="", repeatable=repeatable, subject=b"s", hdr=b"", payload=b"p"
    )


@attrs.define
class Peer:
    up: bool = True
    metadata: Mapping[str, Any] = attrs.field(factory=dict)


class Net:
    """Three nodes; each knows a leader (or none), and carries out what it leads."""

    def __init__(self) -> None:
        self.peers = {name: Peer() for name in (A, B, C)}
        self.handlers: dict[NodeId, Callable[[NodeId, bytes], Awaitable[bytes]]] = {}
        self.relays: dict[NodeId, Callable[[NodeId, bytes], Awaitable[bytes]]] = {}
        self.apart: set[frozenset[NodeId]] = set()  # pairs that have lost their link
        self.cut_off: set[NodeId] = set()  # that reach no majority
        self.leader: NodeId | None = None
        self.believes: dict[NodeId, NodeId | None] = {}
        self.carried_out: list[NodeId] = []
        self.loses = False  # the outcome of what is carried out
        self.breaks: dict[NodeId, Exception] = {}
        self.answers: dict[NodeId, bytes] = {}  # instead of their own
        self.nodes = {name: self._node(name) for name in (A, B, C)}

    def _node(self, name: NodeId) -> Forwarder:
        async def execute(_request: ForwardedRequest) -> bytes:
            await trio.lowlevel.checkpoint()
            if self.loses:
                raise AnswerLost
            if self.leader != name:
                raise Moved(self.believes.get(name))
            self.carried_out.append(name)
            return b"done by " + name.encode()

        def locate(_request: ForwardedRequest, asked: AbstractSet[NodeId]) -> NodeId | None:
            believed = self.believes.get(name, name)
            return None if believed in asked else believed

        return Forwarder(
            node_id=name,
            mesh=NetMesh(self, name),
            locate=locate,
            execute=execute,
            is_cut_off=lambda: name in self.cut_off,
        )


class NetMesh:
    """One node's end of the net."""

    def __init__(self, net: Net, name: NodeId) -> None:
        self._net = net
        self._name = name

    @property
    def peers(self) -> Mapping[NodeId, Peer]:
        return {
            name: peer if frozenset((name, self._name)) not in self._net.apart else Peer(up=False)
            for name, peer in self._net.peers.items()
            if name != self._name
        }

    @property
    def own_routes(self) -> int:
        return 0

    def serve(
        self, method: str, handler: Callable[[NodeId, bytes], Awaitable[bytes]], *, request_bytes_max: int = 0
    ) -> None:
        assert request_bytes_max >= 1 << 20, "a request carries a message's worth"
        if method == "js.api":
            self._net.handlers[self._name] = handler
        else:
            self._net.relays[self._name] = handler

    def routes_to(self, nodes: Container[NodeId]) -> int:
        return sum(node in nodes for node in self.peers)

    def relay_to(self, node: NodeId) -> NodeId | None:
        both = (
            name
            for name in self._net.peers
            if not {frozenset((name, node)), frozenset((name, self._name))} & self._net.apart
        )
        return next((name for name in both if name not in (node, self._name)), None)

    async def call(
        self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, behind_routes: bool = False
    ) -> bytes:
        del behind_routes
        assert timeout_s > 0
        assert frozenset((to, self._name)) not in self._net.apart
        if method == "js.relay":
            return await self._net.relays[to](self._name, payload)
        assert method == "js.api"
        answer = await self._net.handlers[to](self._name, payload)
        if to in self._net.breaks:
            raise self._net.breaks[to]
        return self._net.answers.get(to, answer)


async def test_the_owner_carries_out_its_own_requests() -> None:
    net = Net()
    net.leader, net.believes = A, {A: A}
    assert await net.nodes[A].answer(request()) == b"done by A"
    assert net.nodes[A].forwarded == 0


async def test_another_node_sends_them_to_the_owner() -> None:
    net = Net()
    net.leader, net.believes = B, {A: B}
    assert await net.nodes[A].answer(request()) == b"done by B"
    assert net.carried_out == [B]


async def test_an_owner_without_a_link_is_asked_through_a_node_that_is_linked_with_both() -> None:
    net = Net()
    net.leader, net.believes = B, {A: B}
    net.apart = {frozenset((A, B))}
    assert await net.nodes[A].answer(request()) == b"done by B"
    assert net.carried_out == [B]


async def test_an_owner_without_any_way_there_is_none(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.leader, net.believes = B, {A: B}
    net.apart = {frozenset((A, B)), frozenset((C, B))}
    with pytest.raises(ApiError):
        await net.nodes[A].answer(request())
    assert net.carried_out == []


@pytest.mark.parametrize("repeatable", [False, True])
async def test_what_may_have_been_done_behind_a_node_between_is_not_done_twice(
    autojump_clock: trio.testing.MockClock, *, repeatable: bool
) -> None:
    net = Net()
    net.leader, net.believes = B, {A: B}
    net.apart = {frozenset((A, B))}
    net.breaks = {B: CallTimeoutError("late")}
    with pytest.raises(ApiError) as caught:
        await net.nodes[A].answer(request(repeatable=repeatable))
    assert caught.value.err_code == 10008
    assert len(net.carried_out) > 1 if repeatable else len(net.carried_out) == 1


async def test_a_node_between_that_the_owner_refuses_says_moved(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.leader, net.believes = B, {A: B}
    net.apart = {frozenset((A, B))}
    net.breaks = {B: RemoteCallError("busy")}
    with pytest.raises(ApiError):
        await net.nodes[A].answer(request())
    assert net.nodes[A].forwarded > 1, "it may be asked again: nothing was carried out"


async def test_a_wrong_guess_is_corrected_by_a_hint_without_waiting(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.leader, net.believes = C, {A: B, B: C, C: C}
    started = trio.current_time()
    assert await net.nodes[A].answer(request()) == b"done by C"
    assert trio.current_time() == started


async def test_two_nodes_that_send_to_each_other_do_not_spin(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.believes = {A: B, B: A}
    started = trio.current_time()
    with pytest.raises(ApiError) as caught:
        await net.nodes[A].answer(request())
    assert caught.value.err_code == 10008
    assert OWNER_WAIT_S <= trio.current_time() - started < OWNER_WAIT_S + 0.5
    assert net.nodes[A].forwarded < 200


async def test_a_node_that_is_cut_off_waits_for_no_owner(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.believes = {A: None}
    net.cut_off = {A}
    began_s = trio.current_time()
    with pytest.raises(ApiError) as caught:
        await net.nodes[A].answer(request())
    assert caught.value.err_code == 10008
    assert trio.current_time() - began_s < 0.1


async def test_a_request_waits_for_an_election(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    net = Net()
    net.believes = {A: A, B: None, C: None}

    async def elect() -> None:
        await trio.sleep(2)
        net.leader, net.believes = B, {A: B, B: B, C: B}

    nursery.start_soon(elect)
    assert await net.nodes[A].answer(request()) == b"done by B"


async def test_a_lost_answer_of_a_repeatable_request_is_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.leader, net.believes, net.breaks = B, {A: B}, {B: PeerUnavailableError("gone")}

    async def heal() -> None:
        await trio.sleep(0.5)
        net.breaks = {}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal)
        assert await net.nodes[A].answer(request(repeatable=True)) == b"done by B"


@pytest.mark.parametrize("answer", [b"", b"\x03", b"\x01\xff", b"\x01" + b"x" * 256, b"\x02x"])
async def test_an_answer_that_is_none_may_stand_for_work_that_was_done(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    net.believes, net.answers = {A: B}, {B: answer}
    caplog.set_level("INFO")
    with pytest.raises(ApiError) as caught:
        await net.nodes[A].answer(request())
    assert caught.value.err_code == 10008
    assert f"to {B}: an answer to a forwarded request" in caplog.text


@pytest.mark.parametrize("error", [PeerUnavailableError("gone"), CallTimeoutError("late")])
async def test_a_lost_answer_of_any_other_request_is_an_error_and_not_repeated(error: Exception) -> None:
    net = Net()
    net.leader, net.believes, net.breaks = B, {A: B}, {B: error}
    with pytest.raises(ApiError) as caught:
        await net.nodes[A].answer(request())
    assert caught.value.err_code == 10008
    assert net.carried_out == [B]


async def test_a_node_that_could_not_serve_has_not_carried_it_out(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.believes, net.breaks = {A: B, B: B}, {B: RemoteCallError("busy")}

    async def heal() -> None:
        await trio.sleep(0.5)
        net.leader, net.breaks = B, {}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal)
        assert await net.nodes[A].answer(request()) == b"done by B"


async def test_a_node_that_is_down_is_not_called(autojump_clock: trio.testing.MockClock) -> None:
    net = Net()
    net.leader, net.believes = B, {A: B}
    net.peers[B].up = False
    with pytest.raises(ApiError):
        await net.nodes[A].answer(request())
    assert net.carried_out == []


async def test_an_unknown_outcome_at_the_owner_is_not_repeated() -> None:
    net = Net()
    net.leader, net.believes = B, {A: B}

    net.loses = True
    with pytest.raises(ApiError) as caught:
        await net.nodes[A].answer(request())
    assert caught.value.err_code == 10008


requests = st.builds(
    ForwardedRequest,
    account=st.text(max_size=5),
    owner=st.sampled_from(Owner),
    stream=st.text(max_size=5),
    repeatable=st.booleans(),
    subject=st.binary(max_size=9),
    hdr=st.binary(max_size=9),
    payload=st.binary(max_size=9),
)


@given(requests.filter(lambda one: one.stream.isprintable() and one.account.isprintable()))
def test_a_request_survives_the_wire(one: ForwardedRequest) -> None:
    assert ForwardedRequest.unpack(one.pack()) == one
