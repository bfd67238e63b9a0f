"""A power cut at every operation while a batch is written: the log opens with all of the batch or with none of it."""

from __future__ import annotations

from pathlib import Path

from jetraft.cluster.streams.admission.admit import PublishAdmission
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames._frame import records, seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry
from tests.cluster.lab import stream_config
from tests.cluster.streams.admission.test_admit import NOW_NS, Applied, capture
from tests.cluster.streams.test_batches import member, whole
from tests.store.crash_points import RecordingDisk, disk_of, outcomes
from tests.store.ledgers import ledger_of

GROUP = Path("/store/groups/S-R1F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
OPTIONS = LogOptions(mode=RecoveryMode.SALVAGE)  # as a server opens it: what is damaged is kept as far as it is sound
BATCH = 40


def entries(*captured: bytes) -> list[Entry]:
    """What a group of one appends for these; each record has a checksum of its own, so that it could be salvaged."""
    admission = PublishAdmission(stream_config(allow_atomic=True), Applied())
    publishes = [publish for one in captured for publish in admission.admit(one, NOW_NS).publishes]
    made = []
    for index, publish in enumerate(publishes, 1):
        batch = publish.records
        place = {"index": index, "term": 1, "incarnation": 7, "first_seq": batch.first_seq, "count": batch.count}
        frame = seal(Kind.MESSAGES, body=[memoryview(batch)], summed=True, **place)
        made.append(Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame))
    return made


def test_a_batch_is_there_as_a_whole_or_not_at_all_wherever_the_power_goes() -> None:
    payload = bytes(range(256)) * 2  # so that the batch is several pages long
    batch = b"".join(capture(b"s.%d" % seq, payload, member(seq, commit=seq == BATCH)) for seq in range(1, BATCH + 1))
    plain, atomic, after = entries(capture(b"s.plain"), batch, whole([b"s.x", b"s.y"]))
    disk: RecordingDisk[int] = RecordingDisk(lambda: durable)
    durable = 0
    disk.make_directory(GROUP.parent.parent)
    disk.sync_names()
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), OPTIONS)
    for entry in (plain, atomic, after):
        log.append([entry])
        log.submit()
        disk.finish()
        durable = entry.index
        disk.take("settled")

    seen, tried = set(), 0
    for picture in disk.pictures:
        for name, root in outcomes(picture.root):
            found = open_log(ledger_of(disk_of(root), GROUP), GROUP, IDENTITY, BlockCache(), OPTIONS)
            assert found.last_index >= picture.promised, name
            assert (found.damaged_entries, found.lost) == ((), ()), f"{picture.operation}, {name}"
            held = [len(records(entry.frame)) for _, entry in found.frames(1, found.last_index)]
            assert held == [1, BATCH, 2][: len(held)], f"{picture.operation}, {name}"
            seen.add(len(held))
            tried += 1
    assert seen == {0, 1, 2, 3}
    assert tried > 50


def test_the_check_sees_a_batch_that_was_appended_message_by_message() -> None:
    """Entries of their own would be there in part after a power cut: the test above can fail."""
    made = entries(*(capture(b"s.%d" % seq, bytes(3000)) for seq in range(4)))
    disk: RecordingDisk[None] = RecordingDisk(lambda: None)
    disk.make_directory(GROUP.parent.parent)
    disk.sync_names()
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), OPTIONS)
    for entry in made:
        log.append([entry])
        log.submit()
        disk.finish()
    lengths = set()
    for picture in disk.pictures:
        for _, root in outcomes(picture.root):
            found = open_log(ledger_of(disk_of(root), GROUP), GROUP, IDENTITY, BlockCache(), OPTIONS)
            lengths.add(found.last_index)
    assert lengths == {0, 1, 2, 3, 4}
