"""What becomes of groups whose majority is lost for ever: on each server that is left, and when they start again."""

import select
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio

from jetraft.cluster.recovering import TERMS_SKIPPED, Fate, NotRecoverableError, Recovering, RecoveryVerdict
from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.streams.replica.memory_groups import MemoryGroups
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.raft.engine.membership import Configuration, SettledUpTo
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, node_id_of
from jetraft.store.port import Entry, HardState
from tests.cluster.inprocess import InProcessCluster, InProcessNode, until

GROUP, INCARNATION, TERM = GroupId("S-R3F-abcdefgh"), 7, 3
KEY = b"a key"


def voters(*names: str) -> Configuration:
    return Configuration(voters=[node_id_of(name) for name in names])


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Makes the store of the stopped server n1 with one group: two entries of term 3."""

    def write(configuration: Configuration, key: bytes | None = None, settled: SettledUpTo | None = None) -> Path:
        writer = Writer()
        node_dir = NodeDir.open(LocalDisk(writer), tmp_path, server_name="n1", named=True, cluster="C")
        identity = Identity(node_id=node_dir.node_id, group_id=GROUP, incarnation=INCARNATION)
        options = LogOptions(secrets=None if key is None else Secrets(key=key))
        log = open_log(node_dir.ledger, node_dir.group(GROUP, INCARNATION), identity, BlockCache(), options)
        log.set_hard_state(HardState(term=TERM, vote=None))
        log.save_checkpoint(0, 0, configuration.encode(settled=settled), b"")
        for index in (1, 2):
            record = make_record(b"s", b"", b"x" * 100, ts_ns=index)
            frame = seal(
                Kind.MESSAGES, index=index, term=TERM, incarnation=INCARNATION, body=record, first_seq=index, count=1
            )
            log.append([Entry(index=index, term=TERM, kind=Kind.MESSAGES, frame=frame)])
        log.submit()
        while log.durable_token < log.token():
            select.select([writer.fileno()], [], [])
            writer.drain()
        writer.stop()
        log.close()
        node_dir.close()
        return tmp_path

    return write


def judged(path: Path, *members: str, key: bytes | None = None) -> RecoveryVerdict:
    with closing(Recovering.open(path, key)) as recovering:
        (verdict,) = recovering.judge(members)
        recovering.carry_out(verdict)
    return verdict


@pytest.mark.parametrize(
    ("members", "fate"),
    [
        (("n1", "n2"), Fate.LEFT_ALONE),
        (("n1",), Fate.KEPT),
        (("n1", "n9"), Fate.KEPT),
    ],
)
def test_only_what_has_lost_its_majority_is_kept_by_one(
    written: Callable[..., Path], members: tuple[str, ...], fate: Fate
) -> None:
    path = written(voters("n1", "n2", "n3"))
    assert judged(path, *members).fate is fate


@pytest.mark.parametrize("key", [None, KEY])
def test_who_keeps_a_group_is_its_only_voter_in_a_later_term(written: Callable[..., Path], key: bytes | None) -> None:
    path = written(voters("n1", "n2", "n3"), key)
    before = judged(path, "n1", key=key)
    assert (before.last_index, before.last_term, before.term) == (2, TERM, TERM)
    again = judged(path, "n1", key=key)
    assert again.fate is Fate.LEFT_ALONE
    assert again.voters == (node_id_of("n1"),)
    assert (again.last_index, again.last_term, again.term) == (3, TERM + TERMS_SKIPPED, TERM + TERMS_SKIPPED)


def test_a_group_of_which_only_the_ledger_knows_is_kept_too(tmp_path: Path) -> None:
    """Its first entry is in the ledger, and a power cut has taken its directory, in which there was no file yet."""
    writer = Writer()
    node_dir = NodeDir.open(LocalDisk(writer), tmp_path, server_name="n1", named=True, cluster="C")
    noop = seal(Kind.NOOP, index=1, term=TERM, incarnation=INCARNATION, body=b"")
    node_dir.ledger.commit_now(
        ledger_records.voted((GROUP, INCARNATION), HardState(term=TERM, vote=None)),
        ledger_records.founded((GROUP, INCARNATION), voters("n1", "n2", "n3").encode()),
        ledger_records.begun((GROUP, INCARNATION), [noop]),
    )
    writer.stop()
    node_dir.close()
    verdict = judged(tmp_path, "n1")
    assert (verdict.fate, verdict.last_index, verdict.term) == (Fate.KEPT, 1, TERM)
    again = judged(tmp_path, "n1")
    assert (again.fate, again.last_index) == (Fate.LEFT_ALONE, 2)


def test_the_others_give_their_copy_up_and_remember_that_they_did(written: Callable[..., Path]) -> None:
    path = written(voters("n1", "n2", "n3", "n4", "n5"))
    verdict = judged(path, "n2", "n1")
    assert (verdict.fate, verdict.keeper) == (Fate.GIVEN_UP, node_id_of("n2"))
    node_dir = NodeDir.open(LocalDisk(Writer(1)), path, server_name="n1", named=True, cluster="C")
    assert list(node_dir.groups()) == []
    assert (GROUP, INCARNATION) in MemoryGroups(node_dir.ledger)
    assert (path / "quarantine" / f"{GROUP}.{INCARNATION}").is_dir()
    node_dir.close()


def test_a_learner_keeps_what_no_voter_is_left_of(written: Callable[..., Path]) -> None:
    path = written(Configuration(voters=[node_id_of("n2")], learners=[node_id_of("n1")]))
    assert judged(path, "n1").fate is Fate.KEPT


def test_a_learner_that_was_being_filled_goes_on_with_what_it_has(written: Callable[..., Path]) -> None:
    """What it is kept with is an entry below the one that has admitted it, which it has never got."""
    learner = Configuration(voters=[node_id_of("n2")], learners=[node_id_of("n1")])
    path = written(learner, settled=SettledUpTo(index=50, term=TERM))
    assert judged(path, "n1").fate is Fate.KEPT
    again = judged(path, "n1")
    assert (again.fate, again.voters) == (Fate.LEFT_ALONE, (node_id_of("n1"),))


def test_a_group_that_cannot_be_read_is_told_and_left_as_it_is(written: Callable[..., Path]) -> None:
    path = written(voters("n1", "n2", "n3"), KEY)
    verdict = judged(path, "n1", key=b"another key")
    assert verdict.fate is Fate.UNREADABLE
    assert verdict.reason
    assert judged(path, "n1", key=KEY).fate is Fate.KEPT


def test_it_is_refused_for_others_than_the_members_of_a_cluster(written: Callable[..., Path], tmp_path: Path) -> None:
    path = written(voters("n1", "n2", "n3"))
    with closing(Recovering.open(path)) as recovering:
        with pytest.raises(NotRecoverableError, match="store of n1"):
            recovering.judge(["n2"])
        with pytest.raises(NotRecoverableError, match="no group"):
            recovering.judge(["n1"], only="S-R3F-nothere0")
    with pytest.raises(NotRecoverableError, match="no store directory"):
        Recovering.open(tmp_path / "elsewhere")
    NodeDir.open(LocalDisk(Writer(1)), tmp_path / "alone", server_name="n1", named=True, cluster="").close()
    with pytest.raises(NotRecoverableError, match="no server of a cluster"):
        Recovering.open(tmp_path / "alone")


def replica(node: InProcessNode) -> StreamReplica | None:
    return node.node.directory.get(StreamKey("$G", "S"))


def leads(node: InProcessNode) -> bool:
    found = replica(node)
    return found is not None and found.is_leader


def holds(node: InProcessNode, seq: int) -> bool:
    found = replica(node)
    return found is not None and found.machine.last_seq >= seq and len(found.group.configuration.voters) > 1


async def test_two_of_five_go_on_together_with_what_the_first_of_them_held(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    cluster = InProcessCluster(tmp_path, nursery)
    names = ["n1", "n2", "n3", "n4", "n5"]
    await cluster.start(*names, expected=5)
    await cluster.meta_leader()
    config = {"name": "S", "subjects": ["s.>"], "num_replicas": 5, "storage": "file"}
    assert "error" not in await cluster["n1"].ask("STREAM.CREATE.S", config)
    await until(lambda: any(map(leads, cluster.running)))
    leader = next(filter(leads, cluster.running))
    for number in range(10):
        leader.outbox.publish(b"s.a", b"", b"message %d" % number)
    await until(lambda: all(holds(node, 10) for node in cluster.running))
    for name in names:
        await cluster.stop(cluster[name])

    for name in ("n1", "n2"):
        with closing(Recovering.open(tmp_path / name)) as recovering:
            verdicts = recovering.judge(["n1", "n2"])
            assert {verdict.fate for verdict in verdicts} == {Fate.KEPT if name == "n1" else Fate.GIVEN_UP}
            for verdict in verdicts:
                recovering.carry_out(verdict)
    await cluster.start("n1", "n2", expected=5)

    await until(lambda: leads(cluster["n1"]))
    cluster["n1"].outbox.publish(b"s.a", b"", b"message 11")
    await until(lambda: all(holds(node, 11) for node in cluster.running))
