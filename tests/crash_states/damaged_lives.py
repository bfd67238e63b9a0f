"""Lives of a log that stands alone on a disk that damages what it keeps, judged by a model of what was acknowledged.

Crashes are explored state by state elsewhere (exploration.py); here a disk also rots, loses, mixes up and brings back
old bytes, while the log is down, and a crash may come in the middle of the opening that deals with it. The judge knows
sequences and messages, and nothing of blocks. What it asks after each opening:

- a message that is served is the one that was acknowledged at that sequence, byte for byte, and was not removed since;
- an acknowledged message that is not served is listed as lost, and stays listed until it is removed;
- in a life without damage, or with one damaged checkpoint, nothing is lost;
- no sequence is given out twice;
- what was securely deleted is in no file of the log, once that is durable and as long as nothing was damaged;
- the log always opens, takes another message, and opens again.

Open: two places of damage at once may destroy what no rule protects (all checkpoints of a trimmed log, say): such an
opening raises an error that says so, and the life ends there. It is counted, and must stay rare.
"""

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import attrs
import pytest

from jetraft.store.frames._frame import parse_header
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log import frame_reader, write_queue
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import repair
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.retained_checkpoints import RetainedCheckpoints
from jetraft.store.log.start import LogOptions
from jetraft.store.port import StoreCorrupt, StoreMisplaced
from jetraft.store.stream.lost_messages import LostMessages
from jetraft.store.stream.stream_store import StoreLimits
from tests.crash_states.machine import PowerCutError, WatchedDisk
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Message, Replica

Patch = pytest.MonkeyPatch
LOG: Final = GROUP / "log-00000001"
EPISODES: Final = 8
STEPS: Final = 45
ERASE: Final = True
DAMAGES: Final = ("bit", "bits", "page", "garbage", "sector", "stale", "misdirected", "cut", "gone")


class DamagedLifeError(AssertionError):
    """A promise was broken."""


class RotFoundError(Exception):
    """Ends an episode: the group has been stopped for damage that a read met."""


@attrs.define
class Acknowledged:
    """What a client knows. `unsure` are removals that a crash may have lost or kept."""

    messages: dict[int, Message] = attrs.Factory(dict)
    unsure: set[int] = attrs.Factory(set)
    lost: set[int] = attrs.Factory(set)
    erased: dict[int, bytes] = attrs.Factory(dict)
    last_seq: int = 0


class LoneReplica(Replica):
    """A replica that is repaired as the only member of its group is."""

    def opened(self) -> FileLog:
        """The log, without damaged entries."""
        log = super().opened()
        if any(item.head_damaged for item in log.damaged_blocks):
            lost = [index for low, high in log.lost for index in range(low, high + 1)]
            frames = {index: log.repair.substitute(index) for index in lost}
            log = repair(log, frames)
            if log.damaged_entries:
                log.repair.salvage()
                log.repair.give_up(log.damaged_entries)
            log.repair.note_lost(lost)
        try:
            log.load_checkpoint()
        except (StoreCorrupt, StoreMisplaced):
            if not log.repair.forget_checkpoints():
                raise
        return log


class DamagedLife:
    """One life, decided by its seed."""

    def __init__(self, seed: int, met: Counter[str], damages: tuple[str, ...] = DAMAGES) -> None:
        self.random = Random(seed)
        self.met = met
        self.damages = damages
        self.disk = WatchedDisk()
        self.disk.make_directory(GROUP.parent)
        self.disk.sync_names()
        self.known = Acknowledged()
        self.older: dict[Path, bytes] = {}  # files as they once were
        self.is_damaged = False
        self.must_survive = False  # all that was ever damaged is one checkpoint
        form = self.random.choice(["plain", "plain", "compressed", "encrypted"])
        options = LogOptions(
            block_bytes_first=self.random.choice([2048, 8192]),
            block_bytes_max=8192,
            mode=RecoveryMode.SALVAGE,
            accept_lost_hard_state=True,
            secrets=Secrets(key=b"k" * 32) if form == "encrypted" else None,
        )
        self.replica = LoneReplica(self.disk, options, StoreLimits(max_msgs_per_subject=self.random.choice([1, -1])))
        self.replica.sums, self.replica.compressed = form != "encrypted", form == "compressed"

    def run(self) -> None:
        """Live and be judged. Raises DamagedLifeError."""
        for _ in range(EPISODES):
            is_stopped = True
            try:
                for _ in range(self.random.randrange(STEPS)):
                    self._act()
            except PowerCutError:
                self.met["crashes"] += 1
                is_stopped = False
            except RotFoundError:  # the group stops, and its log is opened again
                pass
            self._end(is_stopped=is_stopped)
            if self.damages and self.random.random() < 0.6:
                self._damage()
            if not self._start():
                self.met["unavailable"] += 1
                return
            self._judge()

    # What happens while it runs.

    def _act(self) -> None:
        replica, luck = self.replica, self.random.random()
        if luck < 0.02:
            self.disk.cut_after(self.random.randrange(1, 12))
        elif luck < 0.03 and self.damages:
            self._rot()
        elif luck < 0.6:
            self._publish()
        elif luck < 0.75:
            self._remove()
        elif luck < 0.85:
            replica.checkpoint()
            self.met["checkpoints"] += 1
        elif luck < 0.92:
            replica.plan()
        else:
            self.met["compacted"] += replica.carry_out()
        if replica.log.note_floor():  # as a server does five times a second
            replica.settle()
        if self.random.random() < 0.05:
            self.older |= {path: self.disk.read_whole(path) for path in self._files()}

    def _publish(self) -> None:
        first = self.replica.store.next_seq
        if first <= self.known.last_seq:
            raise DamagedLifeError(f"sequence {first} is given out again")
        batch = [
            (b"s.%d" % self.random.randrange(12), b"", b"<%d " % (first + at) + self.random.randbytes(12) * 9 + b">")
            for at in range(self.random.randrange(1, 6))
        ]
        try:
            self.replica.publish(batch)
        except PowerCutError:  # not acknowledged: it may be there or not
            self.known.unsure |= set(range(first, first + len(batch)))
            self.known.messages |= {first + at: message for at, message in enumerate(batch)}
            self.known.unsure |= self._gone()
            self.known.last_seq = max(self.known.last_seq, first - 1)
            raise
        self.known.messages |= {first + at: message for at, message in enumerate(batch)}
        self.known.last_seq = first + len(batch) - 1
        for seq in self._gone():
            self.known.messages.pop(seq, None)

    def _gone(self) -> set[int]:
        """What the limit of a subject has removed."""
        if self.replica.limits.max_msgs_per_subject < 0:
            return set()
        newest = {message[0]: seq for seq, message in sorted(self.known.messages.items())}
        return {seq for seq, message in self.known.messages.items() if newest[message[0]] != seq}

    def _remove(self) -> None:
        live = sorted(self.known.messages.keys() - self.known.lost)
        if not live:
            return
        seqs = self.random.sample(live, min(len(live), self.random.randrange(1, 5)))
        erases = self.random.random() < 0.5
        if erases and self.random.random() < 0.2:  # a journal, frames in place, and the end of the journal
            self.disk.cut_after(self.random.randrange(1, 24))
        try:
            self.replica.command("remove", seqs, erases)
        except PowerCutError:
            self.known.unsure |= set(seqs)
            raise
        for seq in seqs:
            _, _, payload = self.known.messages.pop(seq)
            if erases and self.replica.sums:
                self.known.erased[seq] = payload
        self.met["removed"] += len(seqs)

    def _rot(self) -> None:
        """A bit flips in a block that no longer grows, while it is served; what is read is right, or an error."""
        blocks = sorted(path for path in self._files() if path.suffix == ".blk")[:-1]
        if not blocks:
            return
        path = self.random.choice(blocks)
        self.disk.flip_bit(path, self.random.randrange(len(self.disk.read_whole(path))))
        self.met["rot"] += 1
        self.is_damaged = True
        for seq, expected in self.known.messages.items():
            with contextlib.suppress(StoreCorrupt):
                found = self.replica.store.load(seq)
                if found is not None:
                    self._judge_message(seq, expected, (found.subject, found.hdr, found.payload))
        raise RotFoundError

    # What the disk does.

    def _end(self, *, is_stopped: bool) -> None:
        """The process ends: in order, killed, or with the power."""
        self.disk.on_operation = None
        how = self.random.choice(["kill", "power", *["stop"] * is_stopped])
        self.met[how] += 1
        if how == "stop":
            self.replica.settle()
        self.disk.kill()
        if how == "power":
            LossyDisk.crash(self.disk, self.random)

    def _files(self) -> list[Path]:
        names = self.disk.list_directory(LOG)
        return [LOG / name for name in names if name.endswith((".blk", ".ckpt", ".parity"))]

    def _damage(self) -> None:
        """Damage one file in one way; the newest block is left alone, where only the ledger's floor protects."""
        files = self._files()
        blocks = [path for path in files if path.suffix == ".blk"]
        files = [path for path in files if path != max(blocks, default=None)]
        if not files:
            return
        checkpoints = [path for path in files if path.suffix == ".ckpt"]
        if checkpoints and self.random.random() < 0.3:  # the newest: a start has to do with the one before it
            files = [max(checkpoints)]
        path, kind = self.random.choice(files), self.random.choice(self.damages)
        data = self.disk.read_whole(path)
        if not data:
            return
        self.met[kind] += 1
        self.must_survive = path.suffix == ".ckpt" and not self.is_damaged
        self.is_damaged = True
        at, random = self.random.randrange(len(data)), self.random
        page = at - at % 4096
        if kind == "bit":
            self.disk.flip_bit(path, at)
        elif kind == "bits":
            for place in random.sample(range(len(data)), min(len(data), 3)):
                self.disk.flip_bit(path, place)
        elif kind == "sector":
            self.disk.make_unreadable(path, at)
        elif kind == "gone":
            self.disk.unlink(path)
            self.disk.sync_names()
        elif kind == "cut":
            self.disk.cut(path, at)
        else:
            other = {
                "page": bytes(4096),
                "garbage": random.randbytes(4096),
                "stale": self.older.get(path, b"")[page : page + 4096],
                "misdirected": self.disk.read_whole(random.choice(files))[:4096],
            }[kind]
            changed = data[:page] + other + data[page + len(other) :]
            self.disk.replace(path, changed[: len(data)])

    # What is asked.

    def _start(self) -> bool:
        """Open, with crashes in the middle now and then; False when the log says that it cannot be repaired."""
        for _ in range(3):
            if self.random.random() < 0.3:
                self.disk.cut_after(self.random.randrange(1, 30))
            with contextlib.suppress(PowerCutError):
                return self._opens()
            self.met["crashes in an opening"] += 1
            self.disk.on_operation = None
            self.disk.kill()
        return self._opens()

    def _opens(self) -> bool:
        try:
            self.replica.start()
        except (StoreCorrupt, StoreMisplaced) as error:
            if not self.is_damaged or self.must_survive:
                raise DamagedLifeError(f"the log does not open: {error}") from error
            return False
        self.disk.on_operation = None
        return True

    def _judge(self) -> None:
        store, known = self.replica.store, self.known
        listed = {seq for low, high in store.lost() for seq in range(low, min(high, known.last_seq) + 1)}
        for seq in range(1, known.last_seq + 1):
            expected = known.messages.get(seq)
            try:
                found = store.load(seq)
            except StoreCorrupt:
                found = None
                if seq not in listed:
                    raise DamagedLifeError(f"message {seq} cannot be read, and is not listed") from None
            if found is not None:
                self._judge_message(seq, expected, (found.subject, found.hdr, found.payload))
            elif expected is not None and seq not in known.unsure and seq not in listed:
                raise DamagedLifeError(f"message {seq} has vanished: lost are {sorted(listed)[:9]}")
        if listed - known.lost and (not self.is_damaged or self.must_survive):
            raise DamagedLifeError(f"messages {sorted(listed)[:9]} are lost on a sound disk")
        known.lost |= listed
        self.met["listed as lost"] += len(listed)
        for seq in [seq for seq in known.messages if store.subject_of(seq) is None]:
            del known.messages[seq]
        known.unsure.clear()
        known.last_seq = max(known.last_seq, store.next_seq - 1)
        self._judge_erasures()
        self.must_survive = False
        self.met["openings"] += 1

    def _judge_message(self, seq: int, expected: Message | None, found: Message) -> None:
        if expected is None and not self.is_damaged:
            raise DamagedLifeError(f"message {seq} was removed, and is there")
        if expected is not None and found != expected:
            raise DamagedLifeError(f"message {seq} is another one: {found!r:.60} for {expected!r:.60}")

    def _judge_erasures(self) -> None:
        if self.is_damaged or self.random.random() < 0.5:
            return
        self.replica.settle()
        content = b"".join(self.disk.read_whole(path) for path in self._files())
        for seq, payload in self.known.erased.items():
            if not self.replica.compressed and payload in content:
                raise DamagedLifeError(f"message {seq} was securely deleted, and is on the disk")


def lived(seed: int, met: Counter[str], damages: tuple[str, ...] = DAMAGES) -> str:
    """What was broken in the life of a seed; empty for nothing."""
    try:
        DamagedLife(seed, met, damages).run()
    except DamagedLifeError as error:
        return f"seed {seed}: {error}"
    except Exception as error:  # noqa: BLE001  (an error of the product that no promise foresees is a violation too)
        return f"seed {seed}: {error!r}, at {traceback.extract_tb(error.__traceback__)[-1]}"
    met["lives"] += 1
    return ""


# Rules that are broken: do these lives notice?


def checkpoints_count_at_once(patch: Patch) -> None:
    patch.setattr(RetainedCheckpoints, "floor", RetainedCheckpoints.newest_index)


def parity_survives_an_erasure(patch: Patch) -> None:
    patch.setattr(write_queue, "parity_name", lambda _name: "nothing")


def what_is_lost_is_not_listed(patch: Patch) -> None:
    patch.setattr(LostMessages, "note", lambda *_: None)


def frames_are_read_unverified(patch: Patch) -> None:
    def found(data: bytes, offset: int, _index: int, _incarnation: int) -> tuple[bytes, int, int]:
        header = parse_header(data, offset)
        return data[offset : offset + header.length], header.term, header.kind

    patch.setattr(frame_reader, "entry_frame", found)


@attrs.frozen
class LifeMutation:
    """`instead` happens. The life of `seed` shows it; any change may move that, so a long run tries `seeds` of them."""

    instead: str
    switch: Callable[[Patch], None]
    seed: int
    damages: tuple[str, ...] = DAMAGES
    seeds: int = 150


MUTATIONS: Final = (
    LifeMutation("compaction goes by the newest checkpoint", checkpoints_count_at_once, 33),
    LifeMutation("the parity of a block survives an erasure in it", parity_survives_an_erasure, 6, ()),
    LifeMutation("what is lost is not listed", what_is_lost_is_not_listed, 0),
    LifeMutation("frames are read without a look at their checksums", frames_are_read_unverified, 7),
)


def is_noticed(mutation: LifeMutation, *, long: bool) -> bool:
    """Whether a life goes wrong over a mutation that was switched on."""
    seeds = dict.fromkeys((mutation.seed, *range(mutation.seeds if long else 40)))
    return any(_goes_wrong(seed, mutation.damages) for seed in seeds)


def _goes_wrong(seed: int, damages: tuple[str, ...]) -> bool:
    return bool(lived(seed, Counter(), damages))
