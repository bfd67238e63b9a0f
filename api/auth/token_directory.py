"""A directory of accounts' tokens, `<account>.jwt` each, laid out as by nats-server's resolvers `full` and `cache`.

A token is on disk, under its name, when `write` returns. The calls block: they are made in a thread, one at a time.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from jetraft.api.credentials.nkeys import is_account_key
from jetraft.api.credentials.tokens import TOKEN_BYTES_MAX
from jetraft.store.model.files.file_modes import PRIVATE_DIRECTORY, PRIVATE_FILE

SUFFIX: Final = ".jwt"
DELETED: Final = ".deleted"
TEMPORARY: Final = ".tmp"


@attrs.frozen
class TokenDirectory:
    """See the module."""

    path: Path
    keeps: int = 0  # of a cache: files, the last written ones; 0: all
    ttl_s: float = 0  # and for how long; 0: without end

    def open(self) -> None:
        """Make the directory when it is missing, and remove what a crash has left. Raises OSError."""
        self.path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        for left in self.path.glob(f"*{SUFFIX}{TEMPORARY}"):
            left.unlink()
        self.expire()

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Each account's key, and what its file has; a file that is too long is given as empty. Raises OSError."""
        for file in sorted(self.path.glob(f"*{SUFFIX}")):
            if is_account_key(file.stem):
                yield file.stem, file.read_bytes().strip() if file.stat().st_size <= TOKEN_BYTES_MAX else b""

    def write(self, key: str, token: str) -> None:
        """Keep a token in the place of the one before. Raises OSError."""
        target = self._file(key)
        temporary = target.with_name(target.name + TEMPORARY)
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(token.encode())
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(target)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self.expire()
        self._sync()

    def expire(self) -> None:
        """Remove the files of a cache that are too old or too many. Raises OSError."""
        if not self.keeps and not self.ttl_s:
            return
        files = sorted(((file.stat().st_mtime, file) for file in self.path.glob(f"*{SUFFIX}")), reverse=True)
        oldest_s = time.time() - self.ttl_s if self.ttl_s else 0
        for number, (written_s, file) in enumerate(files):
            if written_s < oldest_s or (self.keeps and number >= self.keeps):
                file.unlink()

    def remove(self, key: str, *, is_hard: bool) -> None:
        """Delete an account's file, or give it a name under which it is not read. Raises OSError."""
        file = self._file(key)
        if is_hard:
            file.unlink()
        else:
            file.rename(file.with_name(file.name + DELETED))
        self._sync()

    def _file(self, key: str) -> Path:
        assert is_account_key(key), "a key is a name without separators"
        return self.path / f"{key}{SUFFIX}"

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
