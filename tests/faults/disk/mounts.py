"""Disks that tests can hurt, each a directory while its `with` block lasts. All of them need root.

FaultyDisk   a file system of this test suite (faulty_fs.py): errors, delays, torn writes, power cuts of the model
LoopDisk     ext4 on a loop device, whose power is cut by the kernel's own shutdown request: the real thing
"""

import ctypes
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[3]
EXT4_IOC_SHUTDOWN: Final = 0x8004587D
NO_LOG_FLUSH: Final = 2  # as when the power goes: what the journal has not got is gone
UNMOUNT_S: Final = 10.0
CLONE_NEWNS: Final = 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18


class MountFailed(Exception):  # noqa: N818  (says what is so)
    """Such a disk cannot be had here."""


def missing() -> str | None:
    """Why disks cannot be hurt here; None when one of each kind could be mounted, hurt and taken away."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            return f"{device} is missing"
    for tool in ("losetup", "mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is missing"
    tried = subprocess.run([sys.executable, "-m", __name__], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1]


def _try() -> None:
    """Use each kind of disk once, in a process of its own: its mounts are gone with it. Raises what stands in the way.

    A container may show the devices and refuse to use them, or have a kernel without one of the file systems.
    """
    keep_mounts_apart()
    with tempfile.TemporaryDirectory(prefix="jetraft-disk-probe-") as name:
        place = Path(name)
        with FaultyDisk(place / "fuse") as faulty:
            (faulty.directory / "file").write_bytes(b"x")
            faulty.cut(1)
        with LoopDisk(place / "loop", place / "image", size_mib=16) as loop:
            (loop.directory / "file").write_bytes(b"x")
            loop.cut()
            loop.power_on()


def keep_mounts_apart() -> None:
    """Have what this process and its children mount seen by nobody else, and unmounted when they end.

    A mount namespace that is made elsewhere meanwhile (`ip netns exec` makes one) would keep a copy of each mount, and
    a disk that is still mounted somewhere cannot be switched on again. To be called before any thread is started.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        raise MountFailed(os.strerror(ctypes.get_errno()))


class FaultyDisk:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "tests.faults.disk.faulty_fs", str(self.directory)]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        found = self._answer()
        if "error" in found:
            self.__exit__(None, None, None)
            raise MountFailed(found["error"])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()  # the end of its input ends it

    def order(self, **order: Any) -> dict[str, Any]:
        """Have the file system do something: see faulty_fs.py. Returns its figures."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def cut(self, seed: int) -> None:
        """Cut the power and switch it on again."""
        self.order(cut=seed)

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the file system ended"}
        return answer


class LoopDisk:
    """See the module. `image` becomes a file of `size_mib`."""

    def __init__(self, directory: Path, image: Path, *, size_mib: int = 192) -> None:
        self.directory = directory
        self._image = image
        self._size_mib = size_mib
        self._device = ""

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(self._size_mib << 20)
        _do("mkfs.ext4", "-q", "-F", str(self._image))
        self._device = _do("losetup", "--find", "--show", str(self._image)).strip()
        try:
            self._mount()
        except MountFailed:
            _do("losetup", "--detach", self._device)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self._unmount()
        finally:
            _do("losetup", "--detach", self._device)
            self._image.unlink(missing_ok=True)

    def cut(self, _seed: int = 0) -> None:
        """Cut the power: nothing that is not on the device gets there any more. Whoever uses the disk gets EIO."""
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def power_on(self) -> None:
        """Mount what is left; nobody may use the disk at this moment."""
        self._unmount()
        self._mount()

    def remount(self, *, read_only: bool) -> None:
        """Change between read-only and writable. Raises MountFailed while files are open for writing."""
        _do("mount", "-o", f"remount,{'ro' if read_only else 'rw'}", str(self.directory))

    def _mount(self) -> None:
        _do("mount", self._device, str(self.directory))

    def _unmount(self) -> None:
        deadline = time.monotonic() + UNMOUNT_S
        while True:
            try:
                _do("umount", str(self.directory))
            except MountFailed:  # a process that was killed a moment ago still has it
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return


def _do(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MountFailed(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    _try()
