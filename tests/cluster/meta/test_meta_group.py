"""The meta group's object may be another one while somebody waits for an index."""

import trio
import trio.testing

from jetraft.cluster.meta.meta_group import MetaGroupRef
from tests.doubles.meta_group import AppliedMetaGroup


async def test_an_index_is_waited_for_before_there_is_a_group_and_across_a_replaced_log(nursery: trio.Nursery) -> None:
    ref, ended = MetaGroupRef(), trio.Event()

    async def wait() -> None:
        await ref.wait_applied(7)
        ended.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert ref.applied_index == 0
    first, second = AppliedMetaGroup(3), AppliedMetaGroup(5)
    ref.replace(first.as_meta_group())
    await trio.testing.wait_all_tasks_blocked()
    first.stop()
    await trio.testing.wait_all_tasks_blocked()
    ref.replace(second.as_meta_group())
    await trio.testing.wait_all_tasks_blocked()
    assert not ended.is_set()
    second.apply_to(7)
    await ended.wait()
