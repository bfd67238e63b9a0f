"""Log lines of a server that cannot start; nats-server's words where it has some."""

import os
from pathlib import Path
from typing import Final

from jetraft.api.options.interfaces import join_host_port
from jetraft.api.options.options import Options

MONITOR_ERROR: Final = "Can't start monitoring: can't listen to the monitor port: {}"

STORE: Final = "jetstream"  # the directory in the one that is configured
RESTORE: Final = (
    "; `jetraft verify` lists the damage: restore the store from a backup, or move it away to start with an empty one"
)


class StartError(Exception):
    """The server cannot start; the text is one line with the reason."""


def first_of(failed: BaseException) -> BaseException:
    """Return the first error inside nested exception groups: nurseries wrap what their tasks raise."""
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    return failed


def cannot_start(error: BaseException, *, is_damage: bool) -> str:
    """Return the line that says why JetStream cannot start, with advice to the operator if the store is damaged."""
    if isinstance(error, NotADirectoryError) and Path(str(error.filename)).name == STORE:
        return "Can't start JetStream: storage directory is not a directory"
    if isinstance(error, PermissionError):
        return f"Can't start JetStream: {error}{_whose(Path(str(error.filename)))}"
    return f"Can't start JetStream: {error}{RESTORE if is_damage and 'restore' not in str(error) else ''}"


def _whose(path: Path) -> str:
    """Whom the path, or what there is of it, belongs to: in a container only numbers are known."""
    found = next((place for place in (path, *path.parents) if os.access(place, os.F_OK)), path)
    try:
        owner = f" belongs to user {found.stat().st_uid}"
    except OSError:
        owner = " cannot be looked at"
    return f" ({found}{owner}; this server runs as user {os.geteuid()}, which needs to own it)"


def clients_error(options: Options) -> str:
    """Of the port for clients; braces stand for the reason."""
    where = join_host_port(options.host, max(options.port, 0)).replace("{", "{{").replace("}", "}}")
    return f'Error listening on port: {where}, "{{}}"'


def routes_error(host: str, port: int, error: BaseException) -> str:
    """Of the port for peers."""
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number).lower() if number else str(error)
    where = join_host_port(host, max(port, 0))
    return f"Error listening on router port: {max(port, 0)} - listen tcp {where}: bind: {reason}"
