"""Questions between callbacks: each ends exactly once, whatever becomes of the other node."""

from collections.abc import Callable

import pytest
import trio
import trio.testing

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_RPC
from jetraft.raft.mesh.rpc import ASKED_S, LOOK_S, Calls
from jetraft.store.model.ids import NodeId

A, B = NodeId("a"), NodeId("b")


class Pair:
    """Two nodes whose frames arrive when the test says so; `held` are those on their way."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.held: list[Callable[[], None]] = []
        self.is_linked = True
        self.complaints: list[str] = []
        self.asking = Calls(self._sender_to(A, B), complain=lambda _key, text: self.complaints.append(text))
        self.serving = Calls(self._sender_to(B, A), complain=lambda _key, text: self.complaints.append(text))
        for calls in (self.asking, self.serving):
            calls.start_serving(nursery)
        self.answers: list[bytes | None] = []

    def _sender_to(self, here: NodeId, there: NodeId) -> Callable[[NodeId, int, bytes], bool]:
        def send(to: NodeId, channel: int, payload: bytes) -> bool:
            assert (to, channel) == (there, CHANNEL_RPC)
            if self.is_linked:
                receiver = self.serving if there == B else self.asking
                self.held.append(lambda: receiver.on_frame(channel, here, memoryview(payload)))
            return self.is_linked

        return send

    def ask(self, method: str = "echo", payload: bytes = b"x") -> bool:
        return self.asking.ask(B, method, payload, self.answers.append)

    def deliver(self) -> None:
        held, self.held = self.held, []
        for arrive in held:
            arrive()


def echo(sender: NodeId, payload: bytes, answer: Callable[[bytes], None]) -> None:
    if payload == b"bad":
        raise RemoteProtocolError("no question")
    answer(sender.encode() + payload)


@pytest.fixture
def pair(nursery: trio.Nursery) -> Pair:
    made = Pair(nursery)
    made.serving.serve_at_once("echo", echo)
    return made


async def test_a_question_is_answered_without_a_task(pair: Pair) -> None:
    assert pair.ask()
    pair.deliver()
    assert pair.answers == []
    pair.deliver()
    assert pair.answers == [b"ax"]


async def test_what_cannot_be_asked_or_served_has_no_answer(pair: Pair) -> None:
    assert pair.ask("unknown")
    assert pair.ask(payload=b"bad")
    pair.deliver()
    pair.deliver()
    assert pair.answers == [None, None]
    assert pair.complaints == ["with a: echo: no question"]
    pair.is_linked = False
    assert not pair.ask()
    assert pair.answers == [None, None]


async def test_the_end_of_a_link_ends_its_questions_and_a_late_answer_is_dropped(pair: Pair) -> None:
    assert pair.ask()
    pair.deliver()
    pair.asking.peer_down(B)
    assert pair.answers == [None]
    pair.deliver()
    assert pair.answers == [None]


@pytest.mark.usefixtures("autojump_clock")
async def test_a_question_that_nobody_answers_is_given_up() -> None:
    async with trio.open_nursery() as nursery:
        pair = Pair(nursery)
        answers: list[Callable[[bytes], None]] = []
        pair.serving.serve_at_once("hang", lambda _sender, _payload, answer: answers.append(answer))
        pair.serving.serve_at_once("echo", echo)
        pair.ask("hang")
        pair.ask("echo")
        pair.deliver()
        pair.deliver()
        assert pair.answers == [b"ax"]
        await trio.sleep(ASKED_S - 0.1)
        assert pair.answers == [b"ax"]
        await trio.sleep(LOOK_S + 0.2)
        assert pair.answers == [b"ax", None]
        answers[0](b"late")
        pair.deliver()
        assert pair.answers == [b"ax", None]
    # The nursery has ended: nothing is looked for when nothing is asked.


async def test_tasks_and_callbacks_ask_side_by_side(pair: Pair, nursery: trio.Nursery) -> None:
    found: list[bytes] = []

    async def call() -> None:
        found.append(await pair.asking.call(B, "echo", b"y", timeout_s=5))

    nursery.start_soon(call)
    await trio.testing.wait_all_tasks_blocked()
    assert pair.ask()
    pair.deliver()
    pair.deliver()
    await trio.testing.wait_all_tasks_blocked()
    assert (found, pair.answers) == ([b"ay"], [b"ax"])
