"""Whoever waits for a change is woken when it has come, and looks again."""

import trio
import trio.testing

from jetraft.raft.changes import Change
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import Lab

A, B = NodeId("A"), NodeId("B")
MS = 1_000_000


async def test_a_condition_is_looked_at_after_each_change_and_not_in_between(nursery: trio.Nursery) -> None:
    change, looks, value = Change(), 0, 0

    def holds() -> bool:
        nonlocal looks
        looks += 1
        return value == 2

    async def wait() -> None:
        await change.until(holds)
        ended.set()

    ended = trio.Event()
    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    for value in (1, 2):  # noqa: B007  (the condition reads it)
        change.notify()
        change.notify()
        await trio.testing.wait_all_tasks_blocked()
    assert ended.is_set()
    assert looks == 3


async def test_what_holds_already_is_not_waited_for() -> None:
    await Change().until(lambda: True)


async def test_a_group_tells_when_an_entry_is_applied_and_durable_and_when_it_leads_no_more(
    nursery: trio.Nursery,
) -> None:
    lab = Lab(nodes=(A, B))
    lab.create(preferred=A)
    lab.run(50 * MS)
    group = lab.managers[A].groups[GroupId("S-R3F-test0000")]
    ended: list[str] = []
    index = group.applied_index + 1

    async def note(what: str) -> None:
        match what:
            case "applied":
                await group.wait_applied(index)
            case "durable":
                await group.wait_durable(token)
            case _:
                await group.wait_follower()
        ended.append(what)

    group.propose(Proposal(kind=Kind.META, body=b"x"))
    token = group.log.token() + 1
    for what in ("applied", "durable", "follower"):
        nursery.start_soon(note, what)
    await trio.testing.wait_all_tasks_blocked()
    assert ended == []
    lab.run(50 * MS)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(ended) == ["applied", "durable"]
    assert group.transfer_leadership(B)
    lab.run(500 * MS)
    await trio.testing.wait_all_tasks_blocked()
    assert ended[-1] == "follower"


async def test_a_group_that_ends_is_not_waited_for() -> None:
    lab = Lab(nodes=(A, B))
    lab.create(preferred=A)
    lab.run(50 * MS)
    group = lab.managers[A].groups[GroupId("S-R3F-test0000")]
    lab.managers[A].remove(group.group_id)
    await group.wait_applied(1 << 40)
