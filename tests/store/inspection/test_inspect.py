"""The offline inspector, over real files."""

import json
import select
from pathlib import Path

import pytest

from jetraft.api.cli.main import main
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, KEY_NAMES, Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.inspection.inspect import HardStateView, NotAStoreError, inspect
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import value
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState

GROUP = GroupId("S-R1F-abcdefgh")
MESSAGE_FRAME_BYTES = 48 + 20 + 1 + 100


def entry(index: int, seq: int) -> Entry:
    record = _frame.make_record(b"a", b"", b"p" * 100, ts_ns=1)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=3, incarnation=7, body=record, first_seq=seq, count=1)
    return Entry(index=index, term=3, kind=Kind.MESSAGES, frame=frame)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A node's store with one group of five messages, a vote and a checkpoint."""
    return written(tmp_path, LogOptions())


def written(tmp_path: Path, options: LogOptions) -> Path:
    writer = Writer(1)
    node_dir = NodeDir.open(LocalDisk(writer), tmp_path, server_name="n1", named=True, cluster="C")
    identity = Identity(node_id=node_dir.node_id, group_id=GROUP, incarnation=7)
    log = open_log(node_dir.ledger, node_dir.group(GROUP, 7), identity, BlockCache(), options)
    log.set_hard_state(HardState(term=3, vote=NodeId("AAAAAAAA")))
    log.append([entry(index, index + 10) for index in range(1, 6)])
    log.save_checkpoint(4, 3, b"", b"state")
    log.submit()
    while log.durable_token < log.token():
        select.select([writer.fileno()], [], [])
        writer.drain()
    writer.stop()
    log.close()
    node_dir.close()
    return tmp_path


def block_of(store: Path) -> Path:
    return next(store.rglob("*.blk"))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def tree(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_sound_store_is_described(store: Path) -> None:
    view = inspect(store)

    (group,) = view.groups
    (block,) = group.blocks
    assert view.all_damage == ()
    assert view.identity["server_name"] == "n1"
    assert (group.group_id, group.incarnation, group.last_index, group.last_seq) == (GROUP, 7, 5, 15)
    assert group.hard_state == HardStateView(term=3, vote="AAAAAAAA")
    assert [(item.index, item.state_bytes) for item in group.checkpoints] == [(4, 5)]
    assert (block.frames, block.first_term, block.last_term) == ({"messages": 5}, 3, 3)


@pytest.mark.parametrize("place", ["store", "group"])
def test_nothing_is_changed_and_no_lock_is_needed(store: Path, place: str) -> None:
    writer = Writer(1)
    node_dir = NodeDir.open(LocalDisk(writer), store, server_name="n1", named=True, cluster="C")
    before = tree(store)
    assert main(["verify", str(store if place == "store" else node_dir.group(GROUP, 7))]) == 0
    assert tree(store) == before
    node_dir.close()


def test_a_flipped_bit_is_one_damaged_range(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(block_of(store), BLOCK_HEAD_BYTES + MESSAGE_FRAME_BYTES + 90)

    assert main(["verify", str(store)]) == 1
    assert "entries 2 to 2" in capsys.readouterr().out
    assert main(["inspect", str(store), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sound"] is False
    (block,) = document["groups"][0]["blocks"]
    assert [(gap["first_index"], gap["last_index"]) for gap in block["gaps"]] == [(2, 2)]
    assert block["frames"] == {"messages": 4}


@pytest.mark.parametrize("pattern", ["ledger.0", "ledger.1", "*.ckpt", "*.blk"])
def test_damage_to_any_file_fails_the_verification(store: Path, pattern: str) -> None:
    flip(next(store.rglob(pattern)), 5)
    assert main(["verify", str(store)]) == 1


@pytest.mark.parametrize("name", KEY_NAMES)
def test_a_missing_copy_of_the_data_key_fails_the_verification(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other copy opens the log; once that is lost too, nothing does."""
    pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    store = written(tmp_path, LogOptions(secrets=Secrets(key=b"k")))
    assert main(["verify", str(store)]) == 0
    capsys.readouterr()
    next(store.rglob(name)).unlink()
    assert main(["verify", str(store)]) == 1
    assert f"{name}: is missing" in capsys.readouterr().out


def test_a_log_that_only_the_ledger_has_is_sound(tmp_path: Path) -> None:
    writer = Writer(1)
    node_dir = NodeDir.open(LocalDisk(writer), tmp_path, server_name="n1", named=True, cluster="")
    identity = Identity(node_id=node_dir.node_id, group_id=GROUP, incarnation=7)
    options = LogOptions(begun_bytes_max=1000)
    log = open_log(node_dir.ledger, node_dir.group(GROUP, 7), identity, BlockCache(), options)
    log.set_hard_state(HardState(term=3, vote=node_dir.node_id))
    frame = _frame.seal(Kind.STREAM_OP, index=1, term=3, incarnation=7, body=b"configuration")
    log.append([Entry(index=1, term=3, kind=Kind.STREAM_OP, frame=frame)])
    log.submit()
    while log.durable_token < log.token():
        select.select([writer.fileno()], [], [])
        writer.drain()
    writer.stop()
    log.close()
    node_dir.close()
    view = inspect(tmp_path)
    assert view.all_damage == ()
    group = view.groups[0]
    assert (group.first_index, group.last_index, group.last_term, group.blocks) == (1, 1, 3, ())
    assert group.notes == ("entries 1 to 1 are in the ledger",)


def write_values(store: Path, *names: str) -> None:
    """Give the ledger of a stopped server a batch for each."""
    writer = Writer(1)
    ledger = Ledger.open(LocalDisk(writer), store)
    for name in names:
        ledger.commit_now(value(name, b""))
    ledger.close()
    writer.stop()


def test_a_ledger_of_another_store_fails_the_verification(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(store)]) == 0
    path = store / "node.json"
    named = json.loads(path.read_bytes())
    path.write_text(json.dumps(named | {"ledger": "00112233aabbccdd"}))
    capsys.readouterr()

    assert main(["verify", str(store)]) == 1
    expected = f"damaged: node.json: names ledger 00112233aabbccdd, and {named['ledger']} is here"
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ledger.0", "ledger.1"])
def test_a_copy_of_the_ledger_from_an_earlier_time_fails_the_verification(
    store: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = (store / name).read_bytes()
    write_values(store, "one", "two")
    assert main(["verify", str(store)]) == 0
    (store / name).write_bytes(earlier)
    capsys.readouterr()

    assert main(["verify", str(store)]) == 1
    assert f"damaged: {name}: lacks records that the other copy has" in capsys.readouterr().out


def test_a_batch_that_only_the_first_copy_of_the_ledger_has_is_no_damage(store: Path) -> None:
    earlier = (store / "ledger.1").read_bytes()
    write_values(store, "one")
    (store / "ledger.1").write_bytes(earlier)  # as a crash between the two leaves it
    assert main(["verify", str(store)]) == 0


def test_a_missing_block_fails_the_verification(store: Path) -> None:
    block_of(store).unlink()
    assert main(["verify", str(store)]) == 1


def test_a_torn_tail_is_no_damage(store: Path) -> None:
    path = block_of(store)
    data = bytearray(path.read_bytes())
    used = BLOCK_HEAD_BYTES + 5 * MESSAGE_FRAME_BYTES + 32
    data[used : used + 100] = entry(6, 16).frame[:100]
    path.write_bytes(data)

    view = inspect(store)

    assert view.all_damage == ()
    assert any("torn tail of 100 bytes" in note for note in view.groups[0].notes)


def test_the_text_names_group_blocks_and_votes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(store)]) == 0
    text = capsys.readouterr().out
    assert f"group {GROUP}  incarnation 7" in text
    assert "entries 1..5, terms 3..3, last sequence 15" in text
    assert "term 3, vote AAAAAAAA" in text


def test_what_is_no_store_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        inspect(tmp_path)
    assert main(["inspect", str(tmp_path / "nowhere")]) == 2
    assert main(["inspect"]) == 2
    assert main(["verify", str(tmp_path), "--json"]) == 2
