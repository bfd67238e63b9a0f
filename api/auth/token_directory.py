"""A directory of accounts' tokens, `<account>.jwt` each, laid out as by nats-server's resolver of the type `full`.

A token is on disk, under its name, when `write` returns. The calls block: they are made in a thread, one at a time.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from jetraft.api.auth.nkeys import is_account_key
from jetraft.api.auth.tokens import TOKEN_BYTES_MAX

SUFFIX: Final = ".jwt"
DELETED: Final = ".deleted"
TEMPORARY: Final = ".tmp"
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


@attrs.frozen
class TokenDirectory:
    """See the module."""

    path: Path

    def open(self) -> None:
        """Make the directory when it is missing, and remove what a crash has left. Raises OSError."""
        self.path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        for left in self.path.glob(f"*{SUFFIX}{TEMPORARY}"):
            left.unlink()

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
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
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
        self._sync()

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
