"""What a device keeps of files and directories that were changed and not fsynced: the model behind disks that forget.

From "All file systems are not created equal" (OSDI'14): a power cut keeps, of the writes to a file since its last
fsync, any subset, each of them torn at any sector; sizes may be kept without content. Of the changes to a directory
since its last fsync it keeps a prefix, as journals do. A failed fsync loses what it was to make durable, although
readers go on seeing it (ATC'20). lossy_disk.py makes a Disk of it for tests and the simulator.
"""

import errno as errors
from random import Random
from typing import Final, Union

import attrs

SECTOR_BYTES: Final = 512


@attrs.define(eq=False, kw_only=True)
class LossyFile:
    """Bytes as readers see them, bytes as the device has them, and what is between the two."""

    data: bytearray = attrs.field(factory=bytearray)
    durable: bytearray = attrs.field(factory=bytearray)
    pending: list[tuple[int, bytes | None]] = attrs.field(factory=list)  # (offset, bytes), or (size, None)
    unreadable: set[int] = attrs.field(factory=set)  # sectors that the device cannot read

    def apply(self, target: bytearray, offset: int, piece: bytes | None) -> None:
        """Change bytes as a write (or, with None, a change of size to `offset`) does."""
        if piece is None:
            del target[offset:]
            target.extend(bytes(offset - len(target)))
            return
        target.extend(bytes(max(0, offset - len(target))))
        target[offset : offset + len(piece)] = piece

    def change(self, offset: int, piece: bytes | None) -> None:
        """Write, or change the size; readers see it at once."""
        self.apply(self.data, offset, piece)
        if piece is not None and self.unreadable:
            self.unreadable -= set(range(-(-offset // SECTOR_BYTES), (offset + len(piece)) // SECTOR_BYTES))
        self.pending.append((offset, piece))

    def sync(self) -> None:
        """The device has everything."""
        for offset, piece in self.pending:
            self.apply(self.durable, offset, piece)
        self.pending.clear()

    def lose(self) -> None:
        """An fsync has failed: the pages count as clean, and the device never gets them (ATC'20)."""
        self.pending.clear()

    def crash(self, random: Random) -> None:
        """Lose power: each write since the last sync is kept, torn or lost."""
        for offset, piece in self.pending:
            if random.random() < 0.5:
                self.apply(self.durable, offset, piece if piece is None else _torn(piece, offset, random))
        self.pending.clear()
        self.data = bytearray(self.durable)


def _torn(piece: bytes, offset: int, random: Random) -> bytes:
    """`piece` cut at a sector of the device, or whole."""
    ends = [end - offset for end in range(offset - offset % SECTOR_BYTES, offset + len(piece), SECTOR_BYTES)]
    end = random.choice([len(piece), *ends])
    return piece[: max(0, end)]


LossyNode = Union[LossyFile, "LossyDirectory"]


@attrs.define(eq=False, kw_only=True)
class LossyDirectory:
    """Names as processes see them, names as the device has them, and the changes between the two in order."""

    names: dict[str, LossyNode] = attrs.field(factory=dict)
    durable: dict[str, LossyNode] = attrs.field(factory=dict)
    pending: list[tuple[str, LossyNode | None]] = attrs.field(factory=list)

    def set(self, name: str, node: LossyNode) -> None:
        """Give a node a name."""
        self.names[name] = node
        self.pending.append((name, node))

    def remove(self, name: str) -> None:
        """Take a name away. Raises FileNotFoundError."""
        if name not in self.names:
            raise FileNotFoundError(errors.ENOENT, "no such name", name)
        del self.names[name]
        self.pending.append((name, None))

    def rename(self, old: str, new: str) -> None:
        """Give a node another name, in this directory."""
        node = self.names[old]
        del self.names[old]
        self.names[new] = node
        self.pending.append((f"{old}/{new}", node))

    def move(self, old: str, to: "LossyDirectory", new: str) -> None:
        """Give a node a name in another directory: one transaction of the journal, with all that was before it."""
        to.set(new, self.names[old])
        self.remove(old)
        to.sync()
        self.sync()

    def sync(self, count: int | None = None) -> None:
        """The device has the first `count` changes, or all."""
        for name, node in self.pending[:count]:
            old, _, new = name.partition("/")
            if node is None or new:
                self.durable.pop(old, None)
            if node is not None:
                self.durable[new or old] = node
        self.pending.clear()

    def crash(self, random: Random) -> None:
        """Lose power: a prefix of the changes is kept."""
        self.sync(random.randint(0, len(self.pending)))
        self.names = dict(self.durable)
        for node in self.names.values():
            node.crash(random)
