"""The log of one group on a simulated disk, without a server: hundreds of damages a second.

Built by the product's own parts as a replica uses them (tests/store/replica.py), and opened after the damage as by a
server whose group has no other member. A log that does not open is unavailable with a reason: what an operator is to do
is the server's to say.
"""

import copy
import logging
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, cast

import attrs
import trio

from jetraft.raft.recovery.repair import Repairs
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState, StoreCorrupt, StoreError
from jetraft.store.stream.retention import StoreLimits
from tests.corruption.damages import Case, inflict
from tests.corruption.judge import Promise, Seen, judge
from tests.corruption.verdicts import Finding, Outcome, Verdict, worst
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.lossy_tree import LossyDirectory, LossyFile
from tests.store.ledgers import ledger_of
from tests.store.replica import GROUP, IDENTITY, Replica

if TYPE_CHECKING:
    from jetraft.raft.manager import Manager
    from jetraft.store.log.file_log import FileLog

NAME = "LOG"
_LOGGER = logging.getLogger("jetraft")
BLOCK_BYTES = 2000
CACHE_BYTES = 4000
OLD_STEPS = 90  # trimmed, compacted, with two checkpoints
YOUNG_STEPS = 6  # one block and no checkpoint
KEYS = 12
SEQS_MAX = 250  # above all that was published; after a lost end the next one can be far away
VOTES = (NodeId("AAAAAAAA"), NodeId("BBBBBBBB"))


class LossyTree:
    """The files of a simulated disk."""

    def __init__(self, root: LossyDirectory) -> None:
        self.root = root

    def names(self) -> list[str]:
        """See Tree."""
        found = []
        waiting = [("", self.root)]
        while waiting:
            path, directory = waiting.pop()
            for name, node in directory.names.items():
                if isinstance(node, LossyDirectory):
                    waiting.append((f"{path}{name}/", node))
                else:
                    found.append(path + name)
        return found

    def read(self, name: str) -> bytes:
        """See Tree."""
        return bytes(self._file(name).data)

    def write(self, name: str, content: bytes) -> None:
        """See Tree. The device has it at once."""
        file = self._file(name)
        file.pending.clear()
        file.data, file.durable = bytearray(content), bytearray(content)

    def remove(self, name: str) -> None:
        """See Tree. The device has it at once."""
        folder, _, file = name.rpartition("/")
        directory = self._directory(folder)
        directory.remove(file)
        directory.sync()

    def _directory(self, path: str) -> LossyDirectory:
        at = self.root
        for part in filter(None, path.split("/")):
            found = at.names[part]
            assert isinstance(found, LossyDirectory)
            at = found
        return at

    def _file(self, name: str) -> LossyFile:
        folder, _, file = name.rpartition("/")
        found = self._directory(folder).names[file]
        assert isinstance(found, LossyFile)
        return found


class LoneReplica(Replica):
    """A replica as the only member of its group has it: what is damaged here nobody else has."""

    def opened(self) -> "FileLog":
        """The log, repaired as far as it goes. Raises StoreError."""
        repairs = Repairs(cast("Manager", _NoManager()), None, secrets=self.options.secrets)
        cache = BlockCache(bytes_max=CACHE_BYTES)
        opening = partial(
            repairs.open, ledger_of(self.disk, GROUP), GROUP, IDENTITY, cache, (), accept_lost_hard_state=True
        )
        return trio.run(opening)


class _Said(logging.Handler):
    """What an operator would read in the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        self.lines.append(record.getMessage())

    def __enter__(self) -> None:
        _LOGGER.addHandler(self)

    def __exit__(self, *_: object) -> None:
        _LOGGER.removeHandler(self)


class _NoManager:
    """Nobody asks for frames of this log."""

    def serve_strays(self, handler: object) -> None:
        """See Manager."""


class OneLog:
    """`build` once, then `run` any number of cases, each on a copy of the disk."""

    def __init__(self, *, is_encrypted: bool = False, is_young: bool = False) -> None:
        self.name = "log-young" if is_young else "log-encrypted" if is_encrypted else "log"
        self._steps = YOUNG_STEPS if is_young else OLD_STEPS
        secrets = Secrets(key=b"k" * 32) if is_encrypted else None
        self._options = LogOptions(block_bytes_first=BLOCK_BYTES, block_bytes_max=BLOCK_BYTES, secrets=secrets)
        self._limits = StoreLimits(max_msgs_per_subject=3)
        self._disk = LossyDisk()
        self._older: list[LossyTree] = []  # the newest first
        self._promise = Promise(stream=NAME, group=IDENTITY.group_id, live={}, last_seq=0)
        self._hard_state = HardState(term=0, vote=None)

    @property
    def tree(self) -> LossyTree:
        """The disk before any damage."""
        return LossyTree(self._disk._root)

    def build(self) -> None:
        """Live: publishes, removals with and without erasing, checkpoints, trims, compaction, restarts, votes.

        At last a restart (unless it is young), a few more entries, and a kill: nothing is behind the newest ones.
        """
        random = Random(1)
        replica = LoneReplica(self._disk, self._options, self._limits)
        for step in range(self._steps):
            self._step(replica, random, step)
        if self._steps == OLD_STEPS:
            replica.restart()
        for _ in range(2):
            self._publish(replica, random)
            self._keep_version()
        self._older.pop(0)
        self._disk.sync_names()
        contents = {seq: b"%s %s" % (subject, payload) for seq, (subject, _, payload) in replica.found().items()}
        self._promise = attrs.evolve(self._promise, live=contents, last_seq=replica.store.last_seq)
        self._hard_state = replica.log.hard_state
        replica.log.note_floor()
        self._disk.finish()
        self._disk.kill()

    def _step(self, replica: Replica, random: Random, step: int) -> None:
        self._publish(replica, random)
        if step % 7 == 3:
            replica.command("remove", [random.randrange(1, replica.store.last_seq)], random.random() < 1 / 2)
        if step % 15 == 14:
            replica.plan()
            replica.checkpoint()
            replica.carry_out()
        if step % 20 == 19:
            replica.log.set_hard_state(HardState(term=replica.log.hard_state.term + 1, vote=random.choice(VOTES)))
            replica.settle()
            replica.restart()
        if step == OLD_STEPS // 3:
            replica.command("remove_below", replica.store.last_seq // 2)
        if step % 10 == 5:
            self._keep_version()

    @staticmethod
    def _publish(replica: Replica, random: Random) -> None:
        replica.publish(
            [
                (b"key.%d" % random.randrange(KEYS), b"", random.randbytes(random.randrange(20, 120)))
                for _ in range(random.randrange(1, 4))
            ]
        )

    def _keep_version(self) -> None:
        self._older.insert(0, LossyTree(copy.deepcopy(self._disk._root)))

    def run(self, case: Case) -> Outcome:
        """Damage a copy of the disk, open the log and judge."""
        disk = LossyDisk()
        disk._root = copy.deepcopy(self._disk._root)
        done = inflict(LossyTree(disk._root), case, self._older)
        finding = self._judge(disk) if done.file else Finding(verdict=Verdict.SAME)
        return Outcome(setup=self.name, case=case, file=done.file, what=done.what, finding=finding)

    def _judge(self, disk: LossyDisk) -> Finding:
        """Open twice, with a message published in between: what was told must not be forgotten."""
        try:
            return worst(self._lives(disk))
        except StoreError as error:
            return Finding(verdict=Verdict.UNAVAILABLE, detail=f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001  (whatever it is, a server would end with it)
            return Finding(verdict=Verdict.TRACEBACK, detail=f"{type(error).__name__}: {error}")

    def _lives(self, disk: LossyDisk) -> Iterator[Finding]:
        said = _Said()
        with said:
            replica = LoneReplica(disk, self._options, self._limits)
            seen = self._seen(replica, self._promise)
        yield judge(self._promise, seen, said.lines)
        if replica.log.hard_state != self._hard_state and not replica.log.hard_state_lost:
            detail = f"{self._hard_state} was durable, found {replica.log.hard_state}"
            yield Finding(verdict=Verdict.VOTE_FORGOTTEN, detail=detail)
        replica.publish([(b"after", b"", b"the damage")])
        live = {**self._promise.live, replica.store.last_seq: b"after the damage"}
        promise = attrs.evolve(self._promise, live=live, last_seq=replica.store.last_seq)
        with said:
            replica.restart()
            seen = self._seen(replica, promise)
        yield judge(promise, seen, said.lines)

    @staticmethod
    def _seen(replica: Replica, promise: Promise) -> Seen:
        store, messages = replica.store, {}
        lost = {seq for seq in promise.live if store.is_lost(seq)} | {first for first, _ in store.lost()}
        for seq in sorted({*promise.live, *range(1, SEQS_MAX)}):
            try:
                message = store.load(seq)
            except StoreCorrupt:
                lost.add(seq)  # who reads it is told so
                continue
            if message is not None:
                messages[seq] = b"%s %s" % (message.subject, message.payload)
        return Seen(messages=messages, lost=frozenset(lost), next_seq=store.next_seq)
