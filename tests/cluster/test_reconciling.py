"""Whatever an event starts is done without it, too: the first attempt of each is killed here, and nobody tells again.

`LOOPS` has a row for each loop of a node that compares what should be with what is, and the duties of a replica and of
the meta leader are read off the code: one that is added is in these tests by itself, or makes them fail.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import pytest
import trio
import trio.testing

from jetraft.cluster.calls.forward import AnswerLost
from jetraft.cluster.calls.reconciling import Reconciling
from jetraft.cluster.meta.commands import AddTemplate, RemoveStream
from jetraft.cluster.meta.currency import UnprovedError
from jetraft.cluster.meta.leader_duties import LeaderDuties
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.requests.template_publishes import TemplatePublishes
from jetraft.cluster.state.commands import decode_stream_command
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.cluster.upkeep.replica_duties import IDLE_NS, ReplicaDuties
from jetraft.raft.group import Group
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.signal import Signal
from tests.cluster.inprocess import InProcessCluster
from tests.cluster.lab import Node, start_stream, stream_config
from tests.cluster.meta.makers import ACCOUNT, assign, config, entry
from tests.cluster.meta.test_backend import Bench, S, swap_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.raft.engine.port import Proposal
    from jetraft.raft.proposals import Done

SOON_S: Final = 120.0


def without_first_call(patch: pytest.MonkeyPatch, owner: Any, name: str) -> Callable[[], int]:
    """The first call of a method does nothing. Returns what says how often it was called."""
    original, calls = getattr(owner, name), [0]

    def called(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return None if calls[0] == 1 else original(*args, **kwargs)

    patch.setattr(owner, name, called)
    return lambda: calls[0]


# --- a replica


def duties() -> list[str]:
    """The names of what a replica brings about."""
    replica = start_stream(Node())
    return [duty.__name__ for duty in replica.duties]


@attrs.define
class Stage:
    """A replica that is elected, loses its right to lead, gets it again, and has another configuration to bring in."""

    node: Node = attrs.field(factory=Node)
    may_lead: bool = True
    replica: StreamReplica = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.node.site = attrs.evolve(self.node.site, is_row_current=lambda _row: self.may_lead)
        self.replica = start_stream(self.node)

    def change(self) -> None:
        """What events tell of, each once."""
        row = self.replica.assignment
        self.may_lead = False
        self.replica.weigh()
        self.may_lead = True
        changed = attrs.evolve(row, config=stream_config(max_msgs=7), revision=row.revision + 1)
        self.replica.reconfigure(changed)
        self.replica.note_forgotten(by_all=True)
        self.replica.weigh()
        self.node.sleep(NS_PER_S)

    def undone(self) -> list[str]:
        """What is not as it should be."""
        replica = self.replica
        found = {
            "it serves": replica.is_leader,
            "its configuration": replica.has_config(replica.assignment.config),
            "what was forgotten is written down": bool(replica.machine.store.forgotten_ns),
        }
        return [name for name, is_done in found.items() if not is_done]


@pytest.mark.parametrize("duty", duties())
def test_a_replica_makes_up_for_the_first_call_of_each_duty(duty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    calls = without_first_call(monkeypatch, StreamReplica, duty)
    stage.change()
    for _ in range(2):  # one look does what is due; the next one what that has made possible
        stage.replica.reconcile()
        stage.node.sleep(NS_PER_S)
    assert calls() > 1
    assert stage.undone() == []
    assert stage.replica.reconcile() is None


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNKNOWN])
@pytest.mark.parametrize("what", ["SetConfig", "NoteForgotten", "NOOP"])
def test_a_replica_makes_up_for_proposals_that_come_to_nothing(
    what: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration, the note, and the entry that it waits for before it leads again in its term."""
    stage, killed = Stage(), [0]
    propose = Group.propose

    def failing(self: Group, proposal: Proposal, done: Done | None = None, **others: Any) -> None:
        if kind_of(proposal) != what:
            propose(self, proposal, done, **others)
            return
        killed[0] += 1
        if done is not None:
            done(outcome, None)

    with monkeypatch.context() as patch:
        patch.setattr(Group, "propose", failing)
        stage.change()
    assert killed[0]
    assert stage.undone()
    for _ in range(2):
        stage.replica.reconcile()
        stage.node.sleep(NS_PER_S)
    assert stage.undone() == []


def kind_of(proposal: Proposal) -> str:
    """The name of what is proposed."""
    if proposal.kind != Kind.STREAM_OP:
        return Kind(proposal.kind).name
    assert isinstance(proposal.body, bytes)
    return type(decode_stream_command(proposal.body)).__name__


async def test_the_replicas_of_a_node_are_looked_at_without_any_event(autojump_clock: trio.testing.MockClock) -> None:
    looks: list[float] = []
    replica = SimpleNamespace(reconcile=lambda: looks.append(trio.current_time()))
    row = SimpleNamespace(key=S)
    directory = SimpleNamespace(replicas=lambda: [(row, replica)], get=lambda _key: replica)
    await until_looked(ReplicaDuties(cast("ReplicaDirectory[StreamReplica]", directory)).loop, lambda: len(looks) == 3)
    assert autojump_clock.current_time() <= 2 * IDLE_NS / NS_PER_S + 1


async def test_what_a_replica_cannot_do_is_named(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    del autojump_clock
    replica = SimpleNamespace(reconcile=lambda: "its members are n1, and should be n1, n2")
    directory = SimpleNamespace(replicas=lambda: [(SimpleNamespace(key=S), replica)], get=lambda _key: replica)
    loop = ReplicaDuties(cast("ReplicaDirectory[StreamReplica]", directory)).loop
    with caplog.at_level(logging.INFO):
        await until_looked(loop, lambda: bool(caplog.messages))
    assert caplog.messages == [f"{loop.duty}: stream {S.account} > {S.name}: its members are n1, and should be n1, n2"]


async def until_looked(loop: Reconciling, condition: Callable[[], bool]) -> None:
    """Run a loop, and nothing else, until this is so."""
    with trio.fail_after(SOON_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.run)
            while not condition():  # noqa: ASYNC110  (nothing tells of it: that is the point)
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()


# --- the loops of a node


async def rows_are_compared(patch: pytest.MonkeyPatch) -> None:
    """The directory never hears that streams were made, changed and removed."""
    bench = Bench()
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.backend.run)
        nursery.start_soon(bench.backend.comparison.run)
        await trio.sleep(1)
        patch.setattr(Signal, "emit", lambda *_: None)
        for command, call in (
            (assign("S", group="g1"), "start g1"),
            (RemoveStream(account=ACCOUNT, name="S", incarnation=1), "stop g1"),
        ):
            await bench.apply(command)
            with trio.fail_after(SOON_S):
                while call not in bench.host.calls:  # noqa: ASYNC110  (nothing tells of it)
                    await trio.sleep(1)
        nursery.cancel_scope.cancel()


class Failing:
    """A frontend each of whose duties fails at first, and says how often it was asked."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def duty(*_args: object) -> dict[str, str]:
            await trio.lowlevel.checkpoint()
            self.calls[name] = self.calls.get(name, 0) + 1
            if self.calls[name] == 1:
                raise AnswerLost
            return {}

        return duty


async def the_leaders_duties_are_tried_again(_patch: pytest.MonkeyPatch) -> None:
    """Each duty fails once, and none waits for another one."""
    machine, frontend = MetaMachine(), Failing()
    duties = LeaderDuties(
        machine=machine, frontend=cast("MetaFrontend", frontend), timers=cast("Any", None), clock=cast("Any", None)
    )
    group = cast("Group", SimpleNamespace(is_leader=False, members=()))
    duties.look_after(group)
    machine.became_leader(1)
    wanted = len(duties.duties(group))
    await until_looked(duties.loop, lambda: len(frontend.calls) == wanted and min(frontend.calls.values()) > 1)


async def templates_are_followed(patch: pytest.MonkeyPatch) -> None:
    """Nobody tells that there is a template."""
    machine, added = MetaMachine(), list[bytes]()

    patch.setattr(Signal, "emit", lambda *_: None)

    def add_sink(subject: bytes, *_args: object, **_kwargs: object) -> int:
        added.append(subject)
        return 1

    outbox = SimpleNamespace(add_sink=add_sink, remove_sink=lambda _: None)
    publishes = TemplatePublishes(
        mesh=None,
        machine=machine,
        meta_group=cast("Any", None),
        outboxes=lambda _account: cast("Any", outbox),
        forwarder=cast("Any", None),
        served=cast("Any", SimpleNamespace(serve=lambda *_: None)),
        frontend=cast("Any", None),
        directory=cast("Any", None),
    )

    async def later(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep(1)
        template = AddTemplate(account=ACCOUNT, name="T", config=config("", "t.*"), max_streams=3)
        machine.apply([entry(1, template)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publishes.run)
        nursery.start_soon(later)
        with trio.fail_after(SOON_S):
            while not added:  # noqa: ASYNC110  (nothing tells of it)
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert added == [b"t.*"]


async def replicas_are_looked_at(_patch: pytest.MonkeyPatch) -> None:
    """The tests above kill the first call of each duty, and each proposal."""
    await trio.lowlevel.checkpoint()


LOOPS: Final = {
    "replicas on this node": rows_are_compared,
    "the meta group's leader": the_leaders_duties_are_tried_again,
    "templates": templates_are_followed,
    "streams on this node": replicas_are_looked_at,
}


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_loop_makes_up_for_its_first_attempt_and_for_events_that_are_lost(
    loop: str, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    del autojump_clock
    await LOOPS[loop](monkeypatch)


async def test_every_loop_of_a_node_has_a_row_here(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = InProcessCluster(tmp_path, nursery)
        await cluster.start("n1", "n2")
        found = {loop.duty for loop in loops_of(cluster["n1"].node.parts)}
        nursery.cancel_scope.cancel()
    assert found == set(LOOPS)


def loops_of(part: object) -> Iterator[Reconciling]:
    """All loops that the parts of a node hold."""
    seen, left = set(), [part]
    while left:
        one = left.pop()
        if id(one) in seen or not type(one).__module__.startswith("jetraft.cluster"):
            continue
        seen.add(id(one))
        if isinstance(one, Reconciling):
            yield one
            continue
        names = [name for owner in type(one).__mro__ for name in getattr(owner, "__slots__", ())]
        values = [getattr(one, name, None) for name in names if isinstance(name, str)]
        left += [*values, *getattr(one, "__dict__", {}).values()]


# --- what waits for the table


async def test_what_waits_for_the_table_is_tried_again_though_nobody_tells(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    bench = Bench()
    bench.host.fails, bench.host.error = True, UnprovedError("g1")
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    await trio.sleep(1)
    bench.host.fails = False
    await trio.sleep(SOON_S)
    assert bench.calls() == ["start g1"]


async def test_a_log_is_replaced_though_the_note_of_it_was_lost(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked for the other log waits for it: a filling that did so for ever kept its replica out."""
    del autojump_clock
    bench = Bench()
    await nursery.start(bench.backend.run)
    nursery.start_soon(bench.backend.comparison.run)
    await bench.apply(assign("S", group="g1"))
    without_first_call(monkeypatch, bench.directory, "note")
    with trio.fail_after(SOON_S):
        await bench.backend.reopen(swap_of(bench))
    assert bench.calls() == ["start g1", "reopen g1"]


async def test_what_is_not_started_for_long_is_named(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    del autojump_clock
    bench = Bench()
    bench.host.fails, bench.host.error = True, UnprovedError("g1 waits")
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    with caplog.at_level(logging.INFO):
        nursery.start_soon(bench.backend.comparison.run)
        await trio.sleep(SOON_S)
    assert any(f"stream {S.account} > {S.name}: g1 waits" in line for line in caplog.messages)
