"""A file system that fails on order: `python -m tests.faults.disk.faulty_fs DIRECTORY` mounts it there (root).

It keeps in memory what a device would have, and forgets what was not fsynced when its power is cut
(tests/doubles/lossy_tree.py). Orders come as one JSON object per line, each is answered with a line:

    {"fail": "fsync", "errno": 5, "count": 1, "path": "S-R3F"}   the next such operations fail where the path has this
    {"delay": "fsync", "seconds": 1.0}                           fsyncs take so long (0: no longer)
    {"read_only": true}                                          what changes anything gets EROFS
    {"capacity_bytes": 1000000}                                  ENOSPC beyond it
    {"cut": 7}                                                   power cut, drawn from a seed; mounted again at once
    {"flip": "path", "offset": 100, "mask": 1}                   damage on the device
    {"forget": true}                                             operations that were to fail and have not need not
    {"count": true}                                              how often each operation was asked for, and how many
                                                                 that are to fail have not yet (`pending`)

A failed fsync loses what it was to make durable, as on ext4: later ones succeed, and readers see the truth once the
page cache is dropped. A failed write is torn: half of it is there.
"""

import ctypes
import errno
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs

from tests.doubles.lossy_tree import LossyDirectory, LossyFile, LossyNode
from tests.faults.disk import fuse_wire as wire
from tests.faults.disk.fuse_wire import Op, Request

ROOT: Final = 1
UNLIMITED: Final = 1 << 40
MNT_FORCE, MNT_DETACH = 1, 2
SYNCS: Final = frozenset({Op.FSYNC, Op.FSYNCDIR})
CHANGES: Final = frozenset(
    {Op.SETATTR, Op.MKDIR, Op.UNLINK, Op.RMDIR, Op.RENAME, Op.RENAME2, Op.WRITE, Op.CREATE, Op.FALLOCATE}
)
NAMES: Final = {
    Op.FSYNC: "fsync",
    Op.FSYNCDIR: "fsyncdir",
    Op.WRITE: "write",
    Op.READ: "read",
    Op.FALLOCATE: "allocate",
}
SILENT: Final = frozenset({Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT})
NOTHING: Final = frozenset({Op.RELEASE, Op.FLUSH, Op.RELEASEDIR, Op.ACCESS, Op.DESTROY})


@attrs.define
class Fault:
    """Operations that are to fail."""

    kind: str
    number: int
    left: int
    path: str


class FaultyTree:
    """Nodes by number, and what happens to them. Raises OSError with the number that the kernel is told."""

    def __init__(self) -> None:
        self.root = LossyDirectory()
        self.capacity_bytes = UNLIMITED
        self.read_only = False
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.number()

    def number(self) -> None:
        """Number the nodes again: after a power cut the kernel has forgotten the old ones."""
        self._nodes: dict[int, LossyNode] = {ROOT: self.root}
        self._numbers: dict[int, int] = {id(self.root): ROOT}
        self._paths: dict[int, str] = {ROOT: ""}

    def handle(self, request: Request) -> bytes:
        """Carry out a request."""
        kind = NAMES.get(Op(request.op), "")
        self.counts[kind or Op(request.op).name.lower()] += 1
        if self.read_only and request.op in CHANGES:
            raise OSError(errno.EROFS, "read-only")
        if kind:
            self._maybe_fail(kind, request)
        return self._handlers[Op(request.op)](self, request)

    def _maybe_fail(self, kind: str, request: Request) -> None:
        path = self._paths.get(request.node, "")
        fault = next((item for item in self.faults if item.kind == kind and item.left and item.path in path), None)
        if fault is None:
            return
        fault.left -= 1
        node = self._nodes[request.node]
        if isinstance(node, LossyFile) and kind == "fsync":
            node.lose()
            size = len(node.data)
            node.data = node.durable + bytes(max(0, size - len(node.durable)))
        elif isinstance(node, LossyFile) and kind == "write":
            _fh, offset, size = request.numbers("<QQI")
            node.change(offset, request.body[40 : 40 + size // 2])
        raise OSError(fault.number, kind)

    def used_bytes(self) -> int:
        """What files take."""
        total, waiting = 0, [self.root]
        while waiting:
            for node in waiting.pop().names.values():
                if isinstance(node, LossyDirectory):
                    waiting.append(node)
                else:
                    total += len(node.data)
        return total

    def find(self, path: str) -> LossyNode:
        """A node by its path."""
        node: LossyNode = self.root
        for name in Path(path).parts:
            assert isinstance(node, LossyDirectory)
            node = node.names[name]
        return node

    # Requests.

    def _file(self, node: int) -> LossyFile:
        found = self._nodes[node]
        if not isinstance(found, LossyFile):
            raise IsADirectoryError(errno.EISDIR, "a directory")
        return found

    def _directory(self, node: int) -> LossyDirectory:
        found = self._nodes[node]
        if not isinstance(found, LossyDirectory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        return found

    def _attr(self, node: int) -> bytes:
        found = self._nodes[node]
        is_directory = isinstance(found, LossyDirectory)
        return wire.attributes(
            node, 0 if isinstance(found, LossyDirectory) else len(found.data), is_directory=is_directory
        )

    def _entry(self, parent: int, name: str, found: LossyNode) -> bytes:
        node = self._numbers.setdefault(id(found), len(self._numbers) + 1)
        self._nodes[node] = found  # for good: a number is never used again before the next cut
        self._paths[node] = f"{self._paths[parent]}/{name}"
        return wire.entry(node, self._attr(node))

    def _room_for(self, more_bytes: int) -> None:
        if more_bytes > 0 and self.capacity_bytes < UNLIMITED and self.used_bytes() + more_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "full")

    def _lookup(self, request: Request) -> bytes:
        found = self._directory(request.node).names.get(request.name())
        if found is None:
            raise FileNotFoundError(errno.ENOENT, request.name())
        return self._entry(request.node, request.name(), found)

    def _getattr(self, request: Request) -> bytes:
        return wire.attr_body(self._attr(request.node))

    def _setattr(self, request: Request) -> bytes:
        valid, _, _, size = request.numbers("<IIQQ")
        if valid & wire.SETATTR_SIZE:
            file = self._file(request.node)
            self._room_for(size - len(file.data))
            file.change(size, None)
        return wire.attr_body(self._attr(request.node))

    def _mkdir(self, request: Request) -> bytes:
        return self._make(request, request.name(8), LossyDirectory())

    def _create(self, request: Request) -> bytes:
        parent, name = self._directory(request.node), request.name(16)
        found = parent.names.get(name)
        if found is None:
            self._room_for(1)
            return self._make(request, name, LossyFile()) + bytes(16)
        if request.numbers("<I")[0] & os.O_TRUNC and isinstance(found, LossyFile):
            found.change(0, None)
        return self._entry(request.node, name, found) + bytes(16)

    def _make(self, request: Request, name: str, made: LossyNode) -> bytes:
        parent = self._directory(request.node)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, name)
        parent.set(name, made)
        return self._entry(request.node, name, made)

    def _remove(self, request: Request) -> bytes:
        parent = self._directory(request.node)
        found = parent.names.get(request.name())
        if request.op == Op.RMDIR and isinstance(found, LossyDirectory) and found.names:
            raise OSError(errno.ENOTEMPTY, "not empty")
        parent.remove(request.name())
        return b""

    def _rename(self, request: Request) -> bytes:
        head = 8 if request.op == Op.RENAME else 16
        old, new = (part.decode() for part in request.body[head:].split(b"\0")[:2])
        source, target = self._directory(request.node), self._directory(request.numbers("<Q")[0])
        if source is target:
            if old not in source.names:
                raise FileNotFoundError(errno.ENOENT, old)
            source.rename(old, new)
        else:
            found = source.names[old]
            source.remove(old)
            target.set(new, found)
        return b""

    def _open(self, request: Request) -> bytes:
        flags = request.numbers("<I")[0]
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        if self.read_only and writes:
            raise OSError(errno.EROFS, "read-only")
        if flags & os.O_TRUNC:
            self._file(request.node).change(0, None)
        return (0).to_bytes(8, "little") + (2).to_bytes(8, "little")  # FOPEN_KEEP_CACHE, as a disk's page cache

    def _opendir(self, _request: Request) -> bytes:
        return bytes(16)

    def _read(self, request: Request) -> bytes:
        _fh, offset, size = request.numbers("<QQI")
        return bytes(self._file(request.node).data[offset : offset + size])

    def _write(self, request: Request) -> bytes:
        _fh, offset, size = request.numbers("<QQI")
        file = self._file(request.node)
        self._room_for(offset + size - len(file.data))
        file.change(offset, request.body[40 : 40 + size])
        return size.to_bytes(8, "little")

    def _allocate(self, request: Request) -> bytes:
        _fh, offset, length, mode = request.numbers("<QQQI")
        if mode:
            raise OSError(errno.EOPNOTSUPP, "mode")
        file = self._file(request.node)
        self._room_for(offset + length - len(file.data))
        if offset + length > len(file.data):
            file.change(offset + length, None)
        return b""

    def _fsync(self, request: Request) -> bytes:
        self._nodes[request.node].sync()
        return b""

    def _readdir(self, request: Request) -> bytes:
        _fh, offset, size = request.numbers("<QQI")
        body = b""
        for place, (name, found) in enumerate(sorted(self._directory(request.node).names.items()), start=1):
            item = wire.dirent(2, place, name, is_directory=isinstance(found, LossyDirectory))
            if place <= offset:
                continue
            if len(body) + len(item) > size:
                break
            body += item
        return body

    def _statfs(self, _request: Request) -> bytes:
        used = self.used_bytes()
        return wire.statfs_body(self.capacity_bytes, self.capacity_bytes - used)

    _handlers: Final[dict[Op, Callable[["FaultyTree", Request], bytes]]] = {
        Op.LOOKUP: _lookup,
        Op.GETATTR: _getattr,
        Op.SETATTR: _setattr,
        Op.MKDIR: _mkdir,
        Op.UNLINK: _remove,
        Op.RMDIR: _remove,
        Op.RENAME: _rename,
        Op.RENAME2: _rename,
        Op.OPEN: _open,
        Op.READ: _read,
        Op.WRITE: _write,
        Op.STATFS: _statfs,
        Op.FSYNC: _fsync,
        Op.FSYNCDIR: _fsync,
        Op.OPENDIR: _opendir,
        Op.READDIR: _readdir,
        Op.CREATE: _create,
        Op.FALLOCATE: _allocate,
    }


class FaultyFs:
    """The tree, mounted: a thread answers the kernel, timers answer slow fsyncs, the main thread takes orders."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tree = FaultyTree()
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._delay_s = 0.0
        self._fd = -1

    def mount(self) -> None:
        """Mount, and answer from now on. Raises OSError where that is not allowed."""
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        data = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other".encode()
        if self._libc.mount(b"jetraft-test", bytes(self._directory), b"fuse", 0, data):
            number = ctypes.get_errno()
            os.close(self._fd)
            raise OSError(number, os.strerror(number), str(self._directory))
        threading.Thread(target=self._serve, args=(self._fd,), daemon=True).start()

    def unmount(self) -> None:
        """Take the mount away, whoever still uses it."""
        self._libc.umount2(bytes(self._directory), MNT_FORCE)  # ends requests that wait for an answer
        self._libc.umount2(bytes(self._directory), MNT_DETACH)
        os.close(self._fd)

    def _serve(self, fd: int) -> None:
        with suppress(OSError):
            while True:
                request = wire.parse(os.read(fd, wire.REQUEST_BYTES_MAX))
                if request.op == Op.INIT:
                    os.write(fd, wire.answer(request.unique, wire.init_body()))
                elif request.op in NOTHING:
                    os.write(fd, wire.answer(request.unique))
                elif request.op in SYNCS and self._delay_s:
                    threading.Timer(self._delay_s, self._answer, (fd, request)).start()
                elif request.op not in SILENT:
                    self._answer(fd, request)

    def _answer(self, fd: int, request: Request) -> None:
        with self._lock:
            try:
                reply = wire.answer(request.unique, self._tree.handle(request))
            except OSError as error:
                reply = wire.answer(request.unique, error=error.errno or errno.EIO)
            except (KeyError, ValueError):
                reply = wire.answer(request.unique, error=errno.ENOSYS)
        with suppress(OSError):  # a cut came in between
            os.write(fd, reply)

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order."""
        if "cut" in order:
            self._cut(int(order["cut"]))
            return {}
        with self._lock:
            tree = self._tree
            if "forget" in order:
                tree.faults.clear()
            if "fail" in order:
                fault = Fault(
                    order["fail"], order.get("errno", errno.EIO), order.get("count", 1), order.get("path", "")
                )
                tree.faults = [*(item for item in tree.faults if item.left), fault]
            self._delay_s = order.get("seconds", self._delay_s) if "delay" in order else self._delay_s
            tree.read_only = order.get("read_only", tree.read_only)
            tree.capacity_bytes = order.get("capacity_bytes", tree.capacity_bytes)
            if "flip" in order:
                file = tree.find(order["flip"])
                assert isinstance(file, LossyFile)
                file.sync()
                file.durable[order["offset"]] ^= order["mask"]
                file.data[order["offset"]] ^= order["mask"]
            pending = sum(fault.left for fault in tree.faults)
            return {"counts": dict(tree.counts), "used_bytes": tree.used_bytes(), "pending": pending}

    def _cut(self, seed: int) -> None:
        """The power is gone: what was not fsynced is kept, torn or lost."""
        self.unmount()
        with self._lock:
            self._tree.root.crash(Random(seed))
            self._tree.number()
            self._tree.faults.clear()
            self._tree.read_only, self._delay_s = False, 0.0
        self.mount()


def main() -> None:
    """Serve until the standard input ends."""
    fs = FaultyFs(Path(sys.argv[1]))
    try:
        fs.mount()
    except OSError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return
    try:
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            sys.stdout.write(json.dumps(fs.obey(json.loads(line))) + "\n")
            sys.stdout.flush()
    finally:
        fs.unmount()


if __name__ == "__main__":
    main()
