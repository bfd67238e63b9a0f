"""The operator's last resort: groups whose majority is permanently lost go on with one member that is left.

Offline, on the directory of a stopped server, and on each server that is left with the same list of them. A group that
has a majority of its voters on that list is left alone. Of any other the first of the list that is a voter *keeps* the
group: an entry with it as the only voter is appended, in a term above all that it has seen, as if a leader had written
it; the next start is an election that it wins alone, which commits everything that its log holds. The others of the
list *give up* their copy, as one whose log is of no use does (streams/replica/host.py), and are admitted as learners
when they start. New servers join as ever, and bring groups back to their number of replicas.

Its cost: entries that only lost members held are gone, also acknowledged ones; entries that were never
acknowledged may turn out to be committed. It breaks the promise of a majority, so a lost member must never come back
with its old store: together with another one it would be a majority of its own. etcd's `--force-new-cluster` and
CockroachDB's `debug recover` make the same offer on the same terms.
"""

from __future__ import annotations

import enum
import select
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Self

import attrs

from jetraft.raft.engine.membership import BadConfigurationError, Configuration, settled_of
from jetraft.raft.mesh.store_ages import without_lost
from jetraft.raft.replay import configurations_of
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.kept_ages import AGES_VALUE
from jetraft.store.ledger.node_dir import IDENTITY_NAME, NodeDir, peek_identity
from jetraft.store.ledger.quarantine import GROUPS_NAME
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import BEGUN_BYTES_MAX, LogOptions
from jetraft.store.model.ids import node_id_of
from jetraft.store.port import Entry, HardState, StoreCorrupt, StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from jetraft.store.ledger.ledger_records import GroupKey
    from jetraft.store.log.file_log import FileLog
    from jetraft.store.model.ids import GroupId, NodeId

Told = Callable[[int], AbstractContextManager[Callable[[int], None]]]  # how many, and then how many more are done
TERMS_SKIPPED: Final = 1000  # a lost member may have stood for election a few times more than this one knows of


class Fate(enum.Enum):
    """The fate of this server's copy of a group."""

    LEFT_ALONE = "left alone"  # those that are left are a majority, or this server is no member
    KEPT = "kept"
    GIVEN_UP = "given up"
    UNREADABLE = "unreadable"


@attrs.frozen(kw_only=True, slots=True)
class RecoveryVerdict:
    """One group as this server knows it, and what is to be done with its copy."""

    group_id: GroupId
    incarnation: int
    fate: Fate
    voters: tuple[NodeId, ...] = ()
    keeper: NodeId | None = None
    last_index: int = 0
    last_term: int = 0
    term: int = 0  # the highest seen
    reason: str = ""  # why it is unreadable


class NotRecoverableError(Exception):
    """Why it cannot be done, in one line. Steps that were done before stay, and doing them again is harmless."""


class Recovering:
    """The store of a stopped server, locked until `close`."""

    def __init__(self, node_dir: NodeDir, writer: Writer, *, server_name: str, secrets: Secrets | None) -> None:
        self.server_name = server_name
        self._node_dir = node_dir
        self._writer = writer
        self._secrets = secrets
        self._cache = BlockCache()

    @classmethod
    def open(cls, path: Path, key: bytes | None = None) -> Self:
        """Lock the store and read its ledger; `key` opens an encrypted one. Raises NotRecoverableError."""
        root = next((place for place in (path, path / "jetstream") if (place / GROUPS_NAME).is_dir()), None)
        if root is None:
            raise NotRecoverableError(f"{path}: no store directory")
        server_name, cluster = _identity_of(root)
        with _told():
            writer = Writer()
            node_dir = NodeDir.open(LocalDisk(writer), root, server_name=server_name, named=True, cluster=cluster)
        return cls(node_dir, writer, server_name=server_name, secrets=None if key is None else Secrets(key=key))

    def close(self) -> None:
        """Let a server have it."""
        self._writer.stop()
        self._node_dir.close()

    def judge(
        self, members: Sequence[str], only: str | None = None, *, told: Told | None = None
    ) -> list[RecoveryVerdict]:
        """The plan for each group, or with one, when no servers are left but these.

        Opens the logs, as a start does; `told` is called with how many there are, what its context gives with those
        done. Raises NotRecoverableError when this server is not one of them, or has no such group.
        """
        if self.server_name not in members:
            raise NotRecoverableError(f"this is the store of {self.server_name}, not of one that is left")
        left = [node_id_of(name) for name in members]
        found = [key for key in dict.fromkeys([*self._node_dir.groups(), *self._begun()]) if only in {None, key[0]}]
        if only is not None and not found:
            raise NotRecoverableError(f"there is no group {only} here")
        verdicts = []
        with nullcontext(_untold) if told is None else told(len(found)) as done:
            for group_id, incarnation in found:
                verdicts.append(self._judge(group_id, incarnation, left))
                done(1)
        return verdicts

    def carry_out(self, verdict: RecoveryVerdict) -> None:
        """Do it, durably. Raises NotRecoverableError."""
        key = verdict.group_id, verdict.incarnation
        with _told():
            if verdict.fate is Fate.GIVEN_UP:
                self._node_dir.set_aside_now(*key)
            elif verdict.fate is Fate.KEPT:
                with closing(self._open(*key)) as log:
                    self._keep(log, verdict)

    def renew(self, members: Sequence[str]) -> None:
        """Have the servers that are left take this store for one that they have not met. Raises NotRecoverableError.

        They may know a later state of it, if all stores were put back from copies: the operator vouches for them. And
        the stores of the others, as far as this one has met them, are not linked again.
        """
        ledger = self._node_dir.ledger
        ages = without_lost(ledger.values.get(AGES_VALUE), [node_id_of(name) for name in members])
        with _told():
            self._node_dir.renew_ledger()
            ledger.commit_now(ledger_records.value(AGES_VALUE, ages))

    def _begun(self) -> list[GroupKey]:
        """The groups that only the ledger has: a power cut has taken the directory, in which there was no file yet."""
        ledger = self._node_dir.ledger
        states = [(key, ledger.state(key)) for key in ledger.groups()]
        return [key for key, state in states if state is not None and state.hard_state and not state.expects_files]

    def _judge(self, group_id: GroupId, incarnation: int, left: Sequence[NodeId]) -> RecoveryVerdict:
        try:
            with closing(self._open(group_id, incarnation)) as log:
                configuration = _configuration_of(log)
                keeper = _keeper(configuration, left)
                return RecoveryVerdict(
                    group_id=group_id,
                    incarnation=incarnation,
                    fate=_fate(configuration, left, own=self._node_dir.node_id, keeper=keeper),
                    voters=configuration.voters,
                    keeper=keeper,
                    last_index=log.last_index,
                    last_term=log.term_at(log.last_index) or 0,
                    term=log.hard_state.term,
                )
        except (StoreError, OSError, BadConfigurationError) as error:
            return RecoveryVerdict(group_id=group_id, incarnation=incarnation, fate=Fate.UNREADABLE, reason=str(error))

    def _open(self, group_id: GroupId, incarnation: int) -> FileLog:
        identity = Identity(node_id=self._node_dir.node_id, group_id=group_id, incarnation=incarnation)
        path = self._node_dir.group(group_id, incarnation)
        # Its vote no longer matters: no other member is left whom it could contradict.
        options = LogOptions(secrets=self._secrets, accept_lost_hard_state=True, begun_bytes_max=BEGUN_BYTES_MAX)
        return open_log(self._node_dir.ledger, path, identity, self._cache, options)

    def _keep(self, log: FileLog, verdict: RecoveryVerdict) -> None:
        own = self._node_dir.node_id
        index, term = log.last_index + 1, log.hard_state.term + TERMS_SKIPPED
        body = Configuration(voters=(own,)).encode()
        frame = seal(Kind.RAFT_CONFIG, index=index, term=term, incarnation=verdict.incarnation, body=body)
        log.set_hard_state(HardState(term=term, vote=own))
        log.append([Entry(index=index, term=term, kind=Kind.RAFT_CONFIG, frame=frame)])
        log.submit()
        while log.durable_token < log.token():
            if log.failed is not None:
                raise log.failed
            select.select([self._writer.fileno()], [], [])
            self._writer.drain()


@contextmanager
def _told() -> Iterator[None]:
    """An error of the store is told in one line."""
    try:
        yield
    except (StoreError, OSError) as error:
        raise NotRecoverableError(str(error)) from error


def _identity_of(root: Path) -> tuple[str, str]:
    """The name of the server that the directory belongs to, and its cluster's."""
    try:
        identity = peek_identity(root)
        name, cluster = str(identity["server_name"]), str(identity["cluster"])
    except KeyError as error:
        raise NotRecoverableError(f"{root}: neither the ledger nor {IDENTITY_NAME} says whose store this is") from error
    if not cluster:
        raise NotRecoverableError(f"{root}: {name} is no server of a cluster, so it lacks no majority")
    return name, cluster


def _configuration_of(log: FileLog) -> Configuration:
    """The configuration in force. Raises StoreCorrupt when that cannot be told."""
    checkpoint = log.load_checkpoint()
    if checkpoint is None:
        raise StoreCorrupt(f"{log.place.group}: there is no checkpoint, which says who the members are")
    base, settled = Configuration.decode(checkpoint.members), settled_of(checkpoint.members)
    return configurations_of(log, base, checkpoint.index, settled).current


def _keeper(configuration: Configuration, left: Sequence[NodeId]) -> NodeId | None:
    """The first that is a voter; a learner where no voter is left."""
    for candidates in (configuration.voters, configuration.learners):
        for node in left:
            if node in candidates:
                return node
    return None


def _fate(configuration: Configuration, left: Collection[NodeId], *, own: NodeId, keeper: NodeId | None) -> Fate:
    if configuration.has_quorum(left) or own not in configuration.members:
        return Fate.LEFT_ALONE
    return Fate.KEPT if keeper == own else Fate.GIVEN_UP


def _untold(_count: int) -> None:
    pass
