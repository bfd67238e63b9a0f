"""What the tasks that look after logs see of a group."""

from pathlib import Path

import attrs

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, GroupLog
from tests.store.ledgers import ledger_of

GROUP_ID = GroupId("S-R3F-abcdefgh")
A, B = NodeId("AAAAAAAA"), NodeId("BBBBBBBB")


@attrs.define(eq=False)
class FakeGroup:
    """A group whose failure tests set."""

    log: GroupLog
    group_id: GroupId = GROUP_ID
    incarnation: int = 7
    members: tuple[NodeId, ...] = (A, B)
    failed: Exception | None = None
    checkpoints_renewed: int = 0

    def renew_checkpoint(self) -> None:
        self.checkpoints_renewed += 1

    def fail(self, error: Exception, _now_ns: int) -> None:
        self.failed = error


def sealed_log(path: Path, writer: Writer) -> FileLog:
    """A log with one block that no longer grows."""
    identity = Identity(node_id=A, group_id=GROUP_ID, incarnation=7)
    for index in (1, 2):
        log = open_log(
            ledger_of(LocalDisk(writer), path / "groups" / "g"), path / "groups" / "g", identity, BlockCache()
        )
        if log.last_index:
            log.roll_early()
        frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=b"x" * 100)
        log.append([Entry(index=index, term=1, kind=Kind.NOOP, frame=frame)])
        done: list[int] = []
        log.on_durable = lambda done=done: done.append(1)
        log.submit()
        while not done:
            writer.drain()
        if index == 1:
            log.close()
    return log
