"""How any replica's log is opened, exchanged and closed, over repairs that are played."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from jetraft.cluster.replica_logs import ReplicaLogs, Wish, members_of
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.recovery.joining import JoinPendingError, MemberAdmission
from jetraft.raft.recovery.swap import Swap
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, GroupLog, StoreCorrupt, StoreError
from tests.harness.log_lines import kinds_in

if TYPE_CHECKING:
    from jetraft.raft.group import Group
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.store.ledger.node_dir import NodeDir
    from jetraft.store.log.file_log import FileLog

KEY = (GroupId("S-R3F-test0000"), 7)
A, B, C, D = (NodeId(name) for name in "abcd")


class Played:
    """Repairs, a node directory, and the answers to a wish; `events` is what was done."""

    def __init__(self, *, known: bool = True) -> None:
        self.log = MemLog()
        self.error: Exception | None = None  # of the next opening
        self.is_current = self.is_alone = self.may_be_known = False
        self.events: list[str] = []
        ledger = SimpleNamespace(state=lambda _key: SimpleNamespace(is_noted=False) if known else None)
        directory = SimpleNamespace(
            node_id=A, ledger=ledger, group=lambda *_key: Path("/nowhere"), set_aside=self._set_aside
        )
        repairs = SimpleNamespace(open=self._open, distrust=lambda key: self.events.append(f"distrusts {key[0]}"))
        self.logs = ReplicaLogs(
            node_dir=cast("NodeDir", directory), cache=BlockCache(1 << 20), repairs=cast("Repairs", repairs)
        )
        self.wish = Wish(
            key=KEY,
            is_alone=lambda: self.is_alone,
            others=lambda _log: [B, C],
            may_be_known=lambda: self.may_be_known,
            require_current=self._require_current,
            admit=self._admit,
            may_lose=lambda: True,
        )

    async def _open(self, *_arguments: object, **_options: object) -> GroupLog:
        await trio.lowlevel.checkpoint()
        self.events.append("opens")
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.log

    async def _set_aside(self, *_key: object) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append("sets aside")

    async def _admit(self) -> MemberAdmission:
        await trio.lowlevel.checkpoint()
        self.events.append("is admitted")
        return MemberAdmission(configuration=Configuration(voters=(B, C), learners=(A,)), term=3)

    def _require_current(self) -> None:
        if not self.is_current:
            raise JoinPendingError("not now")


async def test_a_log_that_nobody_knows_is_not_even_opened_while_the_wish_may_be_of_the_past() -> None:
    played = Played(known=False)
    with pytest.raises(JoinPendingError):
        await played.logs.open(played.wish)
    assert played.events == []
    played.is_current = True
    assert await played.logs.open(played.wish) is played.log
    assert played.events == ["opens"]


async def test_a_log_without_a_beginning_gets_none_when_the_wish_has_become_old_while_it_was_opened() -> None:
    played = Played()
    with pytest.raises(JoinPendingError):
        await played.logs.open(played.wish)
    assert played.events == ["opens"]


async def test_a_log_that_is_here_is_opened_whatever_is_known_of_the_wish() -> None:
    played = Played()
    played.log.save_checkpoint(0, 0, Configuration(voters=(A,)).encode(), b"")
    assert await played.logs.open(played.wish) is played.log


async def test_what_is_of_no_use_is_set_aside_after_the_admission_and_only_by_a_wish_of_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    played = Played()
    played.error = StoreCorrupt("all of it")
    with pytest.raises(JoinPendingError):
        await played.logs.open(played.wish)
    assert played.events == ["opens"]

    played.error, played.is_current = StoreCorrupt("all of it"), True
    log = await played.logs.open(played.wish)
    assert played.events[1:] == ["opens", "is admitted", "sets aside", "opens"]
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    assert Configuration.decode(checkpoint.members).learners == (A,)

    played.error, played.is_alone = StoreCorrupt("all of it"), True
    with pytest.raises(StoreCorrupt):
        await played.logs.open(played.wish)
    assert {"replica_set_aside"} <= kinds_in(caplog)


async def test_who_may_be_counted_on_is_admitted_before_its_log_begins() -> None:
    played = Played()
    played.is_current = played.may_be_known = True
    await played.logs.open(played.wish)
    assert played.events == ["opens", "is admitted"]
    assert played.log.hard_state.term == 3


@pytest.mark.parametrize("has_failed", [True, False])
async def test_a_log_that_ended_with_a_failed_write_is_not_read_from_the_cache_again(*, has_failed: bool) -> None:
    """Whatever ended it: here another log could not be taken over, as the old one cannot be written to."""
    played = Played()
    stopped: list[str] = []

    async def fails() -> GroupLog:
        await trio.lowlevel.checkpoint()
        assert stopped == ["stopped"]
        if has_failed:
            played.log.progress.failed = OSError(errno.EIO, "fdatasync")
        raise StoreError("no other log")

    group: Any = SimpleNamespace(log=played.log, group_id=KEY[0], incarnation=KEY[1])
    swap = Swap(cast("Group", group), is_wanted=lambda: True, carry_out=fails)
    with pytest.raises(StoreError, match="no other log"):
        await played.logs.swap(swap, stop=lambda: stopped.append("stopped"))
    assert played.events == ([f"distrusts {KEY[0]}"] if has_failed else [])


def test_the_members_of_a_damaged_log_are_those_of_its_newest_configuration_and_those_believed() -> None:
    log = MemLog()
    log.save_checkpoint(0, 0, Configuration(voters=(A, B)).encode(), b"")
    for index, voters in enumerate([(A, B), (A, C)], start=1):
        body = Configuration(voters=voters).encode()
        frame = seal(Kind.RAFT_CONFIG, index=index, term=1, incarnation=7, body=body)
        log.append([Entry(index=index, term=1, kind=Kind.RAFT_CONFIG, frame=frame)])
    log.submit()
    found: Any = log
    found.damaged_blocks = ("something",)
    assert members_of(cast("FileLog", found), [D], if_unnamed=[B]) == {A, C, D}
    found.damaged_blocks = ()
    assert members_of(cast("FileLog", found), [D], if_unnamed=[B]) == {B, D}, "nothing is read for a sound one"
