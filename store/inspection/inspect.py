"""Inspects a store directory without a server: its content, sound and damaged. Read-only.

It takes no lock and creates nothing, so it also works beside a running server. Then the end of a block may be in the
middle of a write, or a file may be removed while it is read; both are reported as they are found.

Findings are damage or notes. *Damage* makes `jetraft verify` fail: an entry, a file or a block that must exist is
missing or not sound. *Notes* are left by a crash and repaired by the next opening: a torn tail, an unfinished file.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from jetraft.store.blocks.block import entry_of
from jetraft.store.blocks.damage_scan import DamageScan, Gap, frame_kind, is_in, scan_damage
from jetraft.store.blocks.proofs import indexes_of
from jetraft.store.disk.files import TMP_SUFFIX
from jetraft.store.frames import checkpoint as checkpoint_file
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    GENERATION_PREFIX,
    KEY_NAMES,
    BlockHead,
    Identity,
    Kind,
    Stop,
    block_name,
    checkpoint_name,
    generation_name,
    peek_identity,
    unpack_block_head,
)
from jetraft.store.frames.keyring import Secrets
from jetraft.store.inspection.sealed import SealedParts, look
from jetraft.store.ledger import file, ledger, legacy
from jetraft.store.ledger.expected import Expected
from jetraft.store.ledger.ledger_records import GroupKey, GroupState, NodeState
from jetraft.store.ledger.node_dir import IDENTITY_NAME, IDENTITY_VALUE, ledger_named, ledger_number
from jetraft.store.ledger.quarantine import GROUPS_NAME
from jetraft.store.model.files import index_ranges
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import StoreError

FILE_BYTES_MAX: Final = 1 << 30  # a block has at most 288 MiB; larger files are not part of a store


@attrs.frozen(kw_only=True, slots=True)
class BlockView:
    """One block. `gaps` are damaged ranges; the indexes and sequences are those of its sound frames and gaps."""

    name: str
    file_bytes: int
    used_bytes: int
    first_index: int
    last_index: int
    first_term: int
    last_term: int
    last_seq: int
    frames: dict[str, int]  # sound ones by kind
    gaps: tuple[Gap, ...]
    torn_bytes: int  # after the last sound frame of the newest block
    damaged_marks: int
    damage: str = ""  # of the head, or the error of reading the file


@attrs.frozen(kw_only=True, slots=True)
class CheckpointView:
    """One checkpoint file."""

    name: str
    index: int
    term: int
    state_bytes: int
    damage: str = ""


@attrs.frozen(kw_only=True, slots=True)
class HardStateView:
    """Term and vote, from the ledger."""

    term: int
    vote: str


@attrs.frozen(kw_only=True, slots=True)
class GroupView:
    """One group's directory."""

    path: str
    group_id: str
    incarnation: int
    node_id: str
    generation: str
    first_index: int
    last_index: int
    last_term: int
    last_seq: int
    floor_index: int  # the log was durable up to here, according to the ledger
    hard_state: HardStateView | None
    checkpoints: tuple[CheckpointView, ...]
    dropped: tuple[tuple[int, int], ...]
    blocks: tuple[BlockView, ...]
    damage: tuple[str, ...]
    notes: tuple[str, ...]


@attrs.frozen(kw_only=True, slots=True)
class StoreView:
    """A node's store directory, or one group's."""

    path: str
    identity: dict[str, Any]  # node.json; empty for the directory of a group
    groups: tuple[GroupView, ...]
    damage: tuple[str, ...]

    @property
    def all_damage(self) -> tuple[str, ...]:
        """Every finding of damage."""
        return (*self.damage, *(f"{group.group_id}: {what}" for group in self.groups for what in group.damage))

    def to_json(self) -> bytes:
        """The view as JSON, for programs."""
        document = attrs.asdict(self) | {"sound": not self.all_damage}
        return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _unseen(_count: int) -> None:
    """Of a caller that shows no progress."""


class NotAStoreError(StoreError):
    """The directory is neither a node's store nor a group's."""


def block_bytes(path: Path) -> int:
    """The size of all blocks below a directory: what `inspect` is going to read."""
    total = 0
    for block in path.rglob(f"*{BLOCK_SUFFIX}"):
        with suppress(OSError):  # gone meanwhile, beside a server that runs
            total += block.stat().st_size
    return total


def inspect(path: Path, key: bytes | None = None, seen: Callable[[int], None] = _unseen) -> StoreView:
    """Inspect a node's store directory, the `store_dir` above it, or a group's directory. Raises NotAStoreError.

    With the key of an encrypted store, encrypted data is verified too. `seen` is called with the bytes of each block.
    """
    secrets = None if key is None else Secrets(key=key)
    for root in (path, path / "jetstream"):
        if (root / GROUPS_NAME).is_dir():
            return _inspect_node(root, secrets, seen)
    if path.is_dir() and any(name.startswith(GENERATION_PREFIX) for name in os.listdir(path)):  # noqa: PTH208
        damage: list[str] = []
        root = path.parent.parent
        has_ledger = any((root / name).exists() for name in ledger.NAMES)  # not beside a copy of a group's directory
        state = _ledger(root, damage).groups.get(_key_of(path)) if has_ledger else None
        group = _inspect_group(path, secrets, state, seen, has_ledger=has_ledger)
        return StoreView(path=str(path), identity={}, groups=(group,), damage=tuple(damage))
    raise NotAStoreError(f"{path}: neither a store directory nor a group's")


def _inspect_node(root: Path, secrets: Secrets | None, seen: Callable[[int], None]) -> StoreView:
    damage: list[str] = []
    state = _ledger(root, damage)
    identity: dict[str, Any] = {}
    try:
        identity = dict(orjson.loads(state.values[IDENTITY_VALUE]))
    except (KeyError, ValueError, TypeError):
        damage.append(f"{ledger.NAMES[0]}: has no record of the directory's owner")
    paths = sorted(entry for entry in (root / GROUPS_NAME).iterdir() if entry.is_dir())
    paths = [entry for entry in paths if not entry.name.endswith(TMP_SUFFIX)]
    has_ledger = bool(state.groups or state.values)
    groups = tuple(
        _inspect_group(entry, secrets, state.groups.get(_key_of(entry)), seen, has_ledger=has_ledger) for entry in paths
    )
    known = set(map(_key_of, paths))
    for key, group in sorted(state.groups.items()):
        if group.expects_files and key not in known:
            damage.append(f"{key[0]}.{key[1]}: the directory is missing")
    return StoreView(path=str(root), identity=identity, groups=groups, damage=tuple(damage))


def _key_of(path: Path) -> GroupKey:
    group_id, _, incarnation = path.name.rpartition(".")
    return GroupId(group_id or path.name), int(incarnation) if incarnation.isdigit() else 0


def _ledger(root: Path, damage: list[str]) -> NodeState:
    """The state of the ledger; both copies are checked."""
    copies = [_ledger_copy(root, name, damage) for name in ledger.NAMES]
    behind = _behind(*copies)
    if behind == [ledger.NAMES[0]]:  # a running server may have written between the two reads
        copies[0] = _ledger_copy(root, ledger.NAMES[0], damage)
        behind = [] if _behind(*copies) != behind else behind
    merged = file.merge(*copies)
    state = NodeState()
    for record in () if merged is None else merged.records:
        try:
            state.apply(record)
        except ValueError as error:
            damage.append(f"{ledger.NAMES[0]}: {error}")
    if merged is not None and not merged.is_whole:
        damage.append("the ledger lacks records in both copies")
    elif merged is not None and not merged.may_continue:
        lacking = sorted({*behind, *_torn(copies)})
        damage += [f"{name}: lacks records that the other copy has" for name in lacking]
    with suppress(OSError):
        named = ledger_named(_read(root / IDENTITY_NAME))
        if merged is not None and named not in {"", ledger_number(merged.head.ledger)}:
            damage.append(f"{IDENTITY_NAME}: names ledger {named}, and {ledger_number(merged.head.ledger)} is here")
    return state


def _ledger_copy(root: Path, name: str, damage: list[str]) -> file.Copy | None:
    try:
        copy = file.parse(_read(root / name))
    except (OSError, ValueError) as error:
        damage.append(f"{name}: {error}")
        return None
    if copy is None:
        damage.append(f"{name}: the head is damaged")
    return copy


def _behind(first: file.Copy | None, second: file.Copy | None) -> list[str]:
    """The copies that lack records at the end, as one that was restored from a backup does.

    A batch is durable in the first copy before it is written to the second, and the next batch starts when both have
    it; the same is true of the renames of a rewrite.
    """
    if first is None or second is None:
        return []
    if first.head != second.head:
        ahead = first.head.generation - second.head.generation
        return [ledger.NAMES[0]] if ahead < 0 else [ledger.NAMES[1]] if ahead != 1 else []
    if first.last < second.last:
        return [ledger.NAMES[0]]
    began = first.records[first.last][0] if first.records else 1  # the batch that was being written, if any was
    return [ledger.NAMES[1]] if second.last < began - 1 else []


def _torn(copies: Sequence[file.Copy | None]) -> list[str]:
    """The copies that are incomplete, apart from a last batch that was being written."""
    if None in copies:
        return []
    sound = [copy for copy in copies if copy is not None]
    last = max(copy.last for copy in sound)
    return [
        name
        for name, copy in zip(ledger.NAMES, sound, strict=True)
        if len(copy.records) < copy.last or (copy.last < last and not copy.is_clean)
    ]


@attrs.define(eq=False)
class _Findings:
    """The findings of an inspection."""

    seen: Callable[[int], None] = _unseen
    damage: list[str] = attrs.Factory(list)
    notes: list[str] = attrs.Factory(list)
    sealed: SealedParts = attrs.Factory(SealedParts)


def _inspect_group(
    path: Path, secrets: Secrets | None, state: GroupState | None, seen: Callable[[int], None], *, has_ledger: bool
) -> GroupView:
    found = _Findings(seen=seen)
    names = _names(path)
    generations = [name for name in names if name.startswith(GENERATION_PREFIX) and not name.endswith(TMP_SUFFIX)]
    generation = generations[-1] if generations else ""
    if state is not None and state.hard_state is not None:
        generation = generation_name(state.generation)
        found.notes += [f"{name}: does not count" for name in generations if name != generation]
    elif state is None:
        found.notes.append("the ledger has no record of this group")
    has_files = state is None or state.expects_files  # or should have: a log may have no more than its records
    if not generations and has_files:
        found.damage.append("there is no log")
    identity = _identity_of(path, generation)
    if identity is None:
        found.damage += ["no file has a sound owner"] if has_files else []
        group_id, incarnation = _key_of(path)
        identity = Identity(node_id=NodeId(""), group_id=group_id, incarnation=incarnation)
    log = path / generation
    log_names = _names(log) if generation else []
    found.notes += [f"{name}: unfinished" for name in (*names, *log_names) if name.endswith(TMP_SUFFIX)]
    found.sealed = look({name: _read(path / name) for name in KEY_NAMES if name in names}, identity, secrets)
    found.damage += found.sealed.damage
    if found.sealed.is_encrypted and log_names:  # the key has two copies before the log has a file
        found.damage += [f"{name}: is missing" for name in KEY_NAMES if name not in names]
    found.notes += found.sealed.notes
    expected = _expected(log, log_names, identity, state, found)
    checkpoints = _checkpoints(log, log_names, identity, expected, found)
    blocks = _blocks(log, log_names, identity, expected, found)
    _check_span(blocks, expected, found)
    promised = None if state is None else state.hard_state
    if has_ledger and (older := _older_ledger(path, identity, state, blocks[-1].last_term if blocks else 0)):
        found.damage.append(f"both copies of the ledger are older than the log: {older}")
    begun = [] if state is None or blocks else [entry_of(frame) for frame in state.begun]
    if begun:
        found.notes.append(f"entries 1 to {len(begun)} are in the ledger")
    if promised is None:
        found.notes.append("no term and vote yet")
    return GroupView(
        path=str(path),
        group_id=identity.group_id,
        incarnation=identity.incarnation,
        node_id=identity.node_id,
        generation=generation,
        first_index=blocks[0].first_index if blocks else min(1, len(begun)),
        last_index=blocks[-1].last_index if blocks else len(begun),
        last_term=blocks[-1].last_term if blocks else begun[-1].term if begun else 0,
        last_seq=max((block.last_seq for block in blocks), default=0),
        floor_index=expected.floor_index,
        hard_state=None if promised is None else HardStateView(term=promised.term, vote=promised.vote or ""),
        checkpoints=checkpoints,
        dropped=expected.dropped,
        blocks=blocks,
        damage=tuple(found.damage),
        notes=tuple(found.notes),
    )


def _older_ledger(path: Path, identity: Identity, state: GroupState | None, last_term: int) -> str:
    """The evidence that the ledger is older than a log; empty if nothing, or where its memory is lost."""
    if state is not None and state.memory_lost:
        return ""
    promised = 0 if state is None or state.hard_state is None else state.hard_state.term
    if legacy.is_below(promised, last_term):
        return f"it has an entry of term {last_term}, and the ledger knows term {promised}"
    return legacy.outdated(_Files(), path, identity, state, is_alone=False)


def _expected(log: Path, names: list[str], identity: Identity, state: GroupState | None, found: _Findings) -> Expected:
    """The files that must exist, according to the ledger, or derived from the files."""
    if state is not None and state.hard_state is not None and not state.memory_lost:
        expected = Expected.of(state)
        wanted = {block_name(head) for head in expected.heads}
        wanted.update(map(checkpoint_name, expected.checkpoints))
        ours = [name for name in names if name.endswith((BLOCK_SUFFIX, CHECKPOINT_SUFFIX))]
        found.notes += [f"{name}: does not count" for name in ours if name not in wanted]
        return expected
    try:
        return legacy.expected_of(_Files(), log, identity, is_format_2=legacy.is_of_format_2(_Files(), log.parent))
    except (OSError, StoreError) as error:
        found.damage.append(str(error))
        return Expected(heads=(), is_recorded=False)


def _names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []


class _Files:
    """Implements legacy.Files, read-only."""

    def names(self, path: Path) -> list[str]:
        return _names(path)

    def content(self, path: Path) -> bytes:
        return _read(path)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)


def _identity_of(path: Path, generation: str) -> Identity | None:
    """The owner of the files, from the first sound envelope."""
    log = path / generation
    candidates = [path / name for name in (*KEY_NAMES, *legacy.HARD_STATE_NAMES)]
    candidates += [log / name for name in _names(log) if not name.endswith(TMP_SUFFIX)]
    for candidate in candidates:
        try:
            return peek_identity(_read(candidate), what=candidate.name)
        except (OSError, StoreError):
            continue
    return None


def _checkpoints(
    log: Path, names: list[str], identity: Identity, expected: Expected, found: _Findings
) -> tuple[CheckpointView, ...]:
    views = []
    for name in map(checkpoint_name, expected.checkpoints):
        try:
            stem = name.removesuffix(CHECKPOINT_SUFFIX)
            checkpoint = checkpoint_file.unpack(
                _read(log / name),
                identity,
                what=name,
                cipher=found.sealed.cipher,
                index=int(stem) if stem.isdigit() else None,
            )
        except (OSError, StoreError) as error:
            views.append(CheckpointView(name=name, index=0, term=0, state_bytes=0, damage=_cause(error, name, names)))
        else:
            size = len(checkpoint.state)
            views.append(CheckpointView(name=name, index=checkpoint.index, term=checkpoint.term, state_bytes=size))
    found.damage += [view.damage for view in views if view.damage]
    return tuple(views)


def _cause(error: Exception, name: str, names: list[str]) -> str:
    return str(error) if name in names else f"{name}: is missing"


def _blocks(
    log: Path, names: list[str], identity: Identity, expected: Expected, found: _Findings
) -> tuple[BlockView, ...]:
    """The blocks of the log, by index."""
    views: list[BlockView] = []
    for head, limit in expected.limited():
        name = block_name(head)
        damage = ""
        try:
            data = _read(log / name)
            if unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=name) != head:
                damage = f"{name}: holds the head of another block"
        except (OSError, StoreError) as error:
            damage = _cause(error, name, names)
        if damage:
            found.damage.append(damage)
            views.append(_unreadable(name, damage))
        else:
            views.append(_view((name, data, head), identity.incarnation, limit, expected, found))
            found.seen(len(data))
    return tuple(views)


def _unreadable(name: str, damage: str) -> BlockView:
    first = name.partition("-")[0]
    index = int(first) if first.isdigit() else 0
    return BlockView(
        name=name, file_bytes=0, used_bytes=0, first_index=index, last_index=index - 1, first_term=0, last_term=0,
        last_seq=0, frames={}, gaps=(), torn_bytes=0, damaged_marks=0, damage=damage,
    )  # fmt: skip


def _view(
    file: tuple[str, bytes, BlockHead], incarnation: int, last_index: int | None, expected: Expected, found: _Findings
) -> BlockView:
    name, data, head = file
    seen = scan_damage(
        data,
        offset=BLOCK_HEAD_BYTES,
        incarnation=incarnation,
        next_index=head.first_index,
        term=head.boundary_term,
        last_index=last_index,
        tag=head.tag,
    )
    walk = seen.walk
    torn_bytes = 0
    sound = [at for index, at in zip(indexes_of(walk), walk.offsets, strict=True) if not is_in(seen.gaps, index)]
    found.damage += found.sealed.check(name, data, head.serial, sound)
    if last_index is None:
        torn_bytes = len(data[walk.end :].rstrip(b"\0"))
        if expected.is_short(data, head, incarnation):
            found.damage.append(f"{name}: {len(data)} bytes are left of {head.reserved_bytes}")
        if walk.stop == Stop.VERSION:
            found.damage.append(f"{name}: entry {walk.next_index} has a newer format")
        elif torn_bytes:
            found.notes.append(f"{name}: a torn tail of {torn_bytes} bytes from byte {walk.end}")
    for gap in seen.gaps:
        what = f"entries {gap.first_index} to {gap.last_index}" if gap.entries else "no entry"
        found.damage.append(f"{name}: bytes {gap.start} to {gap.end} are damaged ({what})")
    if walk.damaged_marks:
        found.notes.append(f"{name}: {walk.damaged_marks} damaged marks, all entries are sound")
    return BlockView(
        name=name,
        file_bytes=len(data),
        used_bytes=walk.end,
        first_index=head.first_index,
        last_index=walk.next_index - 1,
        first_term=walk.terms[0][1] if walk.terms else head.boundary_term,
        last_term=walk.term,
        last_seq=walk.last_seq,
        frames=_kinds(data, seen),
        gaps=seen.gaps,
        torn_bytes=torn_bytes,
        damaged_marks=walk.damaged_marks,
    )


def _kinds(data: bytes, seen: DamageScan) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for index, offset in zip(indexes_of(seen.walk), seen.walk.offsets, strict=True):
        if not is_in(seen.gaps, index):
            kind = frame_kind(data, offset)
            counts[Kind(kind).name.lower() if kind in list(Kind) else f"kind {kind}"] += 1
    return dict(sorted(counts.items()))


def _check_span(blocks: tuple[BlockView, ...], expected: Expected, found: _Findings) -> None:
    """Check that every index is in a block or was dropped on purpose, and that the log ends at its floor or above."""
    next_index = 1
    for block in blocks:
        if block.damage:
            continue
        if not index_ranges.covers(expected.dropped, next_index, block.first_index - 1):
            found.damage.append(f"entries from {next_index} to {block.first_index - 1} are missing")
        next_index = max(next_index, block.last_index + 1)
    newest = max(expected.checkpoints, default=0)
    if newest >= next_index:
        found.damage.append(f"a checkpoint at {newest}, but the log ends at {next_index - 1}")
    elif expected.floor_index >= next_index:
        found.damage.append(f"entry {expected.floor_index} was durable, but the log ends at {next_index - 1}")
