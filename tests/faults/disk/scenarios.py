"""What is done to the disks. Each scenario is one function: it returns when the fault is over and all is healthy.

Faults come while the load runs. Where a server notices that its disk fails, it goes on running for a moment before
anything else happens: what it acknowledges then counts.
"""

import errno
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import attrs

from tests.faults.disk.mounts import FaultyDisk, LoopDisk
from tests.faults.disk.stage import Stage
from tests.harness.process import ServerFailed

Medium = Literal["loop", "fuse", "plain"]
HELD_S: Final = 2.0  # how long a fault that does not end by itself lasts
SLOW_S: Final = 4.0  # how long a disk is slow: long enough to see at which rate its group goes on
PACE_S: Final = 1.0  # before and after it
MOVED_S: Final = 10.0
SYNC_S: Final = 130.0  # the reference fsyncs every two minutes by default
FLIPS: Final = 2
MIB: Final = 1 << 20


@attrs.frozen(kw_only=True)
class DiskScenario:
    """One kind of fault. `repeats` faults make a run."""

    name: str
    act: Callable[[Stage], None]
    size: int = 3
    medium: Medium = "fuse"
    repeats: int = 3
    rate: float = 400.0
    loses: bool = False  # what is damaged on every replica cannot be repaired: it must be reported instead
    jetraft_only: bool = False


# Power.


def power_cut(stage: Stage) -> None:
    """The power of all nodes goes at once, at any moment."""
    places = list(range(len(stage.nodes)))
    time.sleep(stage.random.uniform(0.05, 0.6))
    for place in places:
        disk = stage.disks[place]
        assert isinstance(disk, LoopDisk | FaultyDisk)
        disk.cut(stage.random.randrange(1 << 30))
    time.sleep(stage.random.uniform(0, 0.2))  # the processes see errors, and must not say that anything is stored
    stage.kill(places)
    for place in places:
        disk = stage.disks[place]
        if isinstance(disk, LoopDisk):
            disk.power_on()
    began_s = time.monotonic()
    stage.start(places)
    stage.healed(began_s)


def power_cut_of_one(stage: Stage) -> None:
    """The leader's power goes; it comes back when another one has led for a while."""
    place = stage.leader()
    disk = stage.disks[place]
    assert isinstance(disk, LoopDisk | FaultyDisk)
    began_s = time.monotonic()
    disk.cut(stage.random.randrange(1 << 30))
    time.sleep(stage.random.uniform(0, 0.2))
    stage.kill([place])
    _note_move(stage, place, began_s)
    if isinstance(disk, LoopDisk):
        disk.power_on()
    started_s = time.monotonic()
    stage.start([place])
    stage.healed(started_s)


# Errors.


def _faulty(stage: Stage, place: int) -> FaultyDisk:
    disk = stage.disks[place]
    assert isinstance(disk, FaultyDisk)
    return disk


def _note_move(stage: Stage, place: int, began_s: float) -> None:
    """Wait until another node leads, and note how long that took since the fault began (monotonic)."""

    def moved() -> bool:
        return any(stage.leads(node) for other, node in enumerate(stage.nodes) if other != place)

    try:
        stage.wait(moved, "another node led", MOVED_S)
        stage.moved_s.append(time.monotonic() - began_s)
    except ServerFailed:
        if stage.kind == "jetraft":
            raise
        stage.notes.append("another node did not lead")


def _when_hit(stage: Stage, disk: FaultyDisk) -> float:
    """Wait until what was to fail has failed; returns the last moment (monotonic) at which it had not been seen to."""
    before_s = time.monotonic()

    def hit() -> bool:
        nonlocal before_s
        asked_s = time.monotonic()
        if not disk.order()["pending"]:
            return True
        before_s = asked_s
        return False

    stage.wait(hit, "an operation failed", SYNC_S)
    return before_s


def _fails_once(kind: str, *, of_leader: bool) -> Callable[[Stage], None]:
    """The next operation of a kind on what holds the stream's entries gives EIO, once."""

    def act(stage: Stage) -> None:
        place = stage.leader() if of_leader else stage.follower()
        disk = _faulty(stage, place)
        path = stage.random.choice(stage.logs())
        stage.notes.append(f"{kind} of {path} failed")
        disk.order(fail=kind, errno=errno.EIO, path=path)
        began_s = _when_hit(stage, disk)
        if of_leader:
            _note_move(stage, place, began_s)
        elif stage.kind == "jetraft":
            stage.wait(lambda: bool(stage.health(place)), "the node said that it was not well", MOVED_S)
        _recover(stage, place)

    return act


def _recover(stage: Stage, place: int) -> None:
    """Wait for the node to recover by itself; restart it if it does not, and say so."""
    if stage.kind == "jetraft":
        stage.healed()
        return
    try:
        stage.wait(lambda: not stage.health(place), "the node recovered by itself", MOVED_S)
    except ServerFailed:  # the reference is helped, and the result says so
        stage.notes.append("restarted")
        stage.kill([place])
        stage.start([place])
    stage.healed()


def _slow(*, of_leader: bool) -> Callable[[Stage], None]:
    """Every fsync takes a second. The result has the rate of acknowledgements before, meanwhile and afterwards."""

    def act(stage: Stage) -> None:
        place = stage.leader() if of_leader else stage.follower()
        disk = _faulty(stage, place)
        time.sleep(PACE_S)
        began_s = time.monotonic()
        disk.order(delay="fsync", seconds=1.0)
        if of_leader:
            _note_move(stage, place, began_s)
        time.sleep(max(0.0, SLOW_S - (time.monotonic() - began_s)))
        disk.order(delay="fsync", seconds=0.0)
        ended_s = time.monotonic()
        stage.healed()
        time.sleep(PACE_S)
        moments = (began_s - PACE_S, began_s, ended_s, time.monotonic())
        stage.paces.append(tuple(stage.journal.pace(since, until) for since, until in pairwise(moments)))

    return act


def _read_only(stage: Stage) -> None:
    """The leader's file system becomes read-only, as ext4 does by itself, and is writable again later."""
    place = stage.leader()
    disk = _faulty(stage, place)
    began_s = time.monotonic()
    disk.order(read_only=True)
    _note_move(stage, place, began_s)
    time.sleep(HELD_S)
    disk.order(read_only=False)
    _recover(stage, place)


def _full(who: Literal["leader", "follower", "all"]) -> Callable[[Stage], None]:
    """Nothing more fits on the disk, from one moment to the next; later there is room again. Nobody is restarted."""

    def act(stage: Stage) -> None:
        chosen = {"leader": lambda: [stage.leader()], "follower": lambda: [stage.follower()]}
        places = chosen.get(who, lambda: list(range(len(stage.nodes))))()
        for place in places:
            disk = _faulty(stage, place)
            disk.order(capacity_bytes=disk.order()["used_bytes"])
        time.sleep(2 * HELD_S)
        for place in places:
            _faulty(stage, place).order(capacity_bytes=1 << 40)
        for place in places:
            _recover(stage, place)

    return act


# Damage, done while the nodes are down.


def _damaged(hurt: Callable[[Stage, int], None], *, everywhere: bool = False) -> Callable[[Stage], None]:
    """Stop nodes, damage their files, start them again."""

    def act(stage: Stage) -> None:
        places = list(range(len(stage.nodes))) if everywhere else [stage.follower()]
        stage.kill(places)
        for place in places:
            hurt(stage, place)
        began_s = time.monotonic()
        stage.start(places)
        if everywhere:
            stage.wait_acks()
        else:
            stage.healed(began_s)

    return act


def flip_bits(stage: Stage, place: int) -> None:
    """Two bits in each file of messages."""
    for path in stage.log_files(place):
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0"))
        for _ in range(FLIPS if used else 0):
            data[stage.random.randrange(used)] ^= 1 << stage.random.randrange(8)
        path.write_bytes(data)


def flip_same_message(stage: Stage, place: int) -> None:
    """A bit of the same message on every replica."""
    payload = min(sent.payload for sent in stage.journal.messages.values() if sent.seq == 20)
    for path in stage.log_files(place):
        data = bytearray(path.read_bytes())
        at = data.find(payload)
        if at >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            return


def zero_a_page(stage: Stage, place: int) -> None:
    """A page of zeros in the middle of the largest file."""
    path = _largest(stage, place)
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    start = used // 2 & ~4095
    data[start : min(start + 4096, used)] = bytes(min(start + 4096, used) - start)
    path.write_bytes(data)


def truncate(stage: Stage, place: int) -> None:
    """The second half of the largest file is gone."""
    path = _largest(stage, place)
    data = path.read_bytes()
    path.write_bytes(data[: len(data.rstrip(b"\0")) // 2])


def put_back_an_older_copy(stage: Stage, place: int) -> None:
    """The largest file is as it was a while ago: it was copied, the node went on, and the copy is put back."""
    path = _largest(stage, place)
    copy = path.read_bytes()
    stage.start([place])
    stage.wait_acks(400)
    stage.wait(lambda: not stage.health(place), "it has caught up")
    stage.kill([place])
    if path.exists():
        path.write_bytes(copy)


def delete_checkpoints(stage: Stage, place: int) -> None:
    """Derived state is gone (jetraft: checkpoints; nats-server: index.db)."""
    pattern = "*.ckpt" if stage.kind == "jetraft" else "index.db"
    for path in stage.nodes[place].store_dir.rglob(pattern):
        path.unlink()


def delete_hard_state(stage: Stage, place: int) -> None:
    """Term and vote of every group, the meta group too, are gone (jetraft: both copies; nats-server: tav.idx)."""
    for path in stage.nodes[place].store_dir.rglob("hard-state*" if stage.kind == "jetraft" else "tav.idx"):
        path.unlink()


def wipe(stage: Stage, place: int) -> None:
    """The disk is new."""
    shutil.rmtree(stage.nodes[place].store_dir)


def _largest(stage: Stage, place: int) -> Path:
    return max(stage.log_files(place), key=lambda path: len(path.read_bytes().rstrip(b"\0")))


def _everywhere(name: str, hurt: Callable[[Stage, int], None], *, loses: bool = False) -> DiskScenario:
    """The same on all three nodes."""
    act = _damaged(hurt, everywhere=True)
    return DiskScenario(name=f"{name}-everywhere", act=act, medium="plain", repeats=1, loses=loses)


SCENARIOS: Final = (
    DiskScenario(name="power-cut-one-replica", act=power_cut, size=1, medium="loop", repeats=10),
    DiskScenario(name="power-cut-all-three", act=power_cut, medium="loop", repeats=5),
    DiskScenario(name="power-cut-leader", act=power_cut_of_one, medium="loop", repeats=3),
    DiskScenario(name="torn-power-cut-one-replica", act=power_cut, size=1, repeats=10),
    DiskScenario(name="torn-power-cut-all-three", act=power_cut, repeats=5),
    DiskScenario(name="fsync-error-leader", act=_fails_once("fsync", of_leader=True)),
    DiskScenario(name="fsync-error-follower", act=_fails_once("fsync", of_leader=False)),
    DiskScenario(name="torn-write-leader", act=_fails_once("write", of_leader=True)),
    DiskScenario(name="slow-fsync-leader", act=_slow(of_leader=True)),
    DiskScenario(name="slow-fsync-follower", act=_slow(of_leader=False)),
    DiskScenario(name="read-only-leader", act=_read_only),
    DiskScenario(name="full-leader", act=_full("leader"), rate=2000),
    DiskScenario(name="full-follower", act=_full("follower"), rate=2000),
    DiskScenario(name="full-all", act=_full("all"), rate=2000),
    DiskScenario(name="flipped-bits", act=_damaged(flip_bits), medium="plain"),
    DiskScenario(name="zeroed-page", act=_damaged(zero_a_page), medium="plain"),
    DiskScenario(name="truncated-file", act=_damaged(truncate), medium="plain"),
    DiskScenario(name="older-copy", act=_damaged(put_back_an_older_copy), medium="plain"),
    DiskScenario(name="deleted-checkpoints", act=_damaged(delete_checkpoints), medium="plain"),
    DiskScenario(name="deleted-term-and-vote", act=_damaged(delete_hard_state), medium="plain"),
    DiskScenario(name="wiped-disk", act=_damaged(wipe), medium="plain", repeats=1),
    _everywhere("flipped-bits", flip_bits),
    _everywhere("zeroed-page", zero_a_page, loses=True),
    _everywhere("deleted-checkpoints", delete_checkpoints),
    DiskScenario(
        name="same-message-everywhere",
        act=_damaged(flip_same_message, everywhere=True),
        medium="plain",
        repeats=1,
        loses=True,
    ),
)
