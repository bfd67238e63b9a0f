"""What `/healthz` asks of the meta leader, and how often."""

from functools import partial

import trio
import trio.testing

from jetraft.cluster.calls.messages.inquiries import MetaState
from jetraft.cluster.meta.health import GRACE_NS, HEALTHY, Seen, Steps
from jetraft.cluster.meta.table_lease import ASK_S, FRESH_NS, TableLease
from jetraft.cluster.readiness import VERDICT_NS, Readiness
from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model.clock import NS_PER_S, ManualClock
from tests.cluster.meta.test_health import FINE
from tests.doubles.meta_group import AppliedMetaGroup


class Leader:
    """Answers with what it has committed; None while there is none."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.index: int | None = 7
        self.meta_group = AppliedMetaGroup(7)
        self.questions = 0
        self.full = False
        self.failed: dict[StreamKey, str] = {}
        self.lease = TableLease(clock=self.clock, ask=self.ask, wait_applied=self.meta_group.wait_applied)
        self.readiness = Readiness(clock=self.clock, see=self.see, lease=self.lease)

    async def ask(self) -> MetaState | None:
        await trio.sleep(ASK_S / 10)
        self.questions += 1
        return None if self.index is None else MetaState(index=self.index, is_member=True)

    def see(self) -> Steps[Seen]:
        yield
        return Seen(
            clustered=True, outside=False, meta=FINE.meta, replicas=FINE.replicas, failed=self.failed, is_full=self.full
        )


async def test_one_answer_serves_all_who_ask_within_a_second(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    leader = Leader()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(leader.readiness.health)
    leader.clock.advance(FRESH_NS)
    assert await leader.readiness.health() == HEALTHY
    assert leader.questions == 1

    leader.clock.advance(VERDICT_NS + 1)
    assert await leader.readiness.health() == HEALTHY
    assert leader.questions == 2


async def test_a_table_that_lags_behind_the_leader_of_now_is_not_current(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    leader = Leader()
    leader.index = 8
    began_s = trio.current_time()
    assert (await leader.readiness.health()).reason == "JetStream is not current with the meta leader"
    assert trio.current_time() - began_s <= ASK_S + 0.01, "a monitoring client does not wait for ever"

    leader.clock.advance(VERDICT_NS + 1)
    leader.meta_group.apply_to(8)
    assert await leader.readiness.health() == HEALTHY


async def test_a_leader_that_is_away_for_a_moment_is_no_reason_but_for_longer_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    leader = Leader()
    assert await leader.readiness.health() == HEALTHY
    leader.index = None
    leader.clock.advance(GRACE_NS)
    assert await leader.readiness.health() == HEALTHY
    leader.clock.advance(NS_PER_S)
    assert await leader.readiness.health() != HEALTHY


async def test_who_asks_where_clients_may_go_hears_nothing_of_a_full_disk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    leader = Leader()
    leader.full = True
    full, partly = leader.readiness.health, partial(leader.readiness.health, with_space=False)
    assert (await full()).http_status == 503
    assert await partly() == HEALTHY


async def test_who_asks_about_the_table_only_is_told_of_no_stream_and_of_no_disk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    leader = Leader()
    leader.failed = {StreamKey("$G", "S"): "damaged"}
    leader.full = True
    assert await leader.readiness.health() != HEALTHY
    assert await leader.readiness.health(meta_only=True) == HEALTHY
    leader.index = 8
    leader.clock.advance(GRACE_NS + 1)
    assert await leader.readiness.health(meta_only=True) != HEALTHY
