"""The files that a server writes when it is ready: its process id, and its ports.

`<program>_<pid>.ports` is nats-server's: a JSON object of lists of URLs. It is written under another name and renamed,
so that a reader never sees a part of it.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import attrs

from jetraft.api.options.interfaces import join_host_port, local_addresses
from jetraft.api.startup.created_files import made_with
from jetraft.store.model.files.file_modes import SHOWN_FILE


class StartFilesError(Exception):
    """A configured file cannot be written; the text is one line."""


@attrs.define(kw_only=True)
class StartFiles:
    """The files of one server; a file with an empty name is not written."""

    pid_file: str
    ports_file_dir: str
    written: list[Path] = attrs.field(factory=list)

    def write(self, addresses: Mapping[str, tuple[str, str, int]]) -> None:
        """Write the configured files. `addresses` has scheme, host and port by service. Raises StartFilesError."""
        if self.pid_file:
            try:
                _write(Path(self.pid_file), str(os.getpid()))
            except OSError as error:
                raise StartFilesError(f"Unable to write pidfile: {error.strerror}: {self.pid_file}") from error
            self.written.append(Path(self.pid_file))
        if self.ports_file_dir:
            document = {
                name: [f"{scheme}://{join_host_port(address, port)}" for address in local_addresses(host)]
                for name, (scheme, host, port) in addresses.items()
            }
            path = Path(self.ports_file_dir) / f"{program_name(sys.argv[0])}_{os.getpid()}.ports"
            temporary = path.with_suffix(".ports.tmp")
            try:
                _write(temporary, json.dumps(document))
                temporary.rename(path)
            except OSError as error:
                raise StartFilesError(f"Unable to write ports file: {error.strerror}: {path}") from error
            self.written.append(path)

    def remove(self) -> None:
        """Remove the files that were written; a missing file is no error."""
        for path in self.written:
            with suppress(OSError):
                path.unlink()


def program_name(path: str) -> str:
    """The name that the server was started by; of `python -m jetraft`, which names a file of the package, jetraft."""
    name = Path(path).name
    return "jetraft" if name in ("", "__main__.py") else name


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=made_with(SHOWN_FILE)) as file:
        file.write(text)
