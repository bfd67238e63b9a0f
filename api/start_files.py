"""Files for whoever started the server: its process id, and the ports that it listens on.

`<program>_<pid>.ports` is nats-server's: a JSON object of lists of URLs, written beside its place and renamed into it,
so that a reader sees all of it or nothing.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import attrs

WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104  compared with


class StartFilesError(Exception):
    """A file that the starter asked for cannot be written; the text is one line."""


@attrs.define(kw_only=True)
class StartFiles:
    """The files of one server; an empty name means that nobody asked for it."""

    pid_file: str
    ports_file_dir: str
    written: list[Path] = attrs.field(factory=list)

    def write(self, addresses: Mapping[str, tuple[str, str, int]]) -> None:
        """Write both: `addresses` are scheme, host and port by what is served there. Raises StartFilesError."""
        if self.pid_file:
            try:
                Path(self.pid_file).write_text(str(os.getpid()), encoding="ascii")
            except OSError as error:
                raise StartFilesError(f"Unable to write pidfile: {error.strerror}: {self.pid_file}") from error
            self.written.append(Path(self.pid_file))
        if self.ports_file_dir:
            document = {
                name: [f"{scheme}://{'127.0.0.1' if host in WILDCARDS else host}:{port}"]
                for name, (scheme, host, port) in addresses.items()
            }
            path = Path(self.ports_file_dir) / f"{Path(sys.argv[0]).name or 'jetraft'}_{os.getpid()}.ports"
            temporary = path.with_suffix(".ports.tmp")
            try:
                temporary.write_text(json.dumps(document), encoding="utf-8")
                temporary.rename(path)
            except OSError as error:
                raise StartFilesError(f"Unable to write ports file: {error.strerror}: {path}") from error
            self.written.append(path)

    def remove(self) -> None:
        """Remove what was written; what is gone already is well."""
        for path in self.written:
            with suppress(OSError):
                path.unlink()
