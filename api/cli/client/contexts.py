"""Contexts: named sets of connection options in files, those of the `nats` command line too.

Own contexts are in `$XDG_CONFIG_HOME/jetraft/context` (`~/.config` by default) in the form that `nats` uses; those of
`nats` are read and never written. They hold secrets: files are made for their owner only.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import attrs

from jetraft.api.cli.client.errors import CommandError
from jetraft.store.model.files.file_modes import PRIVATE_DIRECTORY, PRIVATE_FILE

BYTES_MAX: Final = 1 << 20  # a context is a few hundred bytes
NAME_MAX: Final = 128
FIELDS: Final = {  # our option, and its key in a context
    "server": "url",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "tlscert": "cert",
    "tlskey": "key",
    "tlsca": "ca",
    "tls_first": "tls_first",
    "js_domain": "jetstream_domain",
    "js_api_prefix": "jetstream_api_prefix",
    "inbox_prefix": "inbox_prefix",
}
SECRETS: Final = ("password", "token", "user_jwt", "user_seed")


def without_secrets(urls: str) -> str:
    """The URLs, which commas separate, without users and passwords."""
    found = []
    for url in urls.split(","):
        scheme, there, rest = url.strip().partition("://")
        found.append(f"{scheme}://{rest.rpartition('@')[2]}" if there else url.strip().rpartition("@")[2])
    return ",".join(found)


@attrs.frozen(kw_only=True)
class Context:
    """A context, and which program's it is."""

    name: str
    origin: str  # jetraft or nats
    path: Path
    values: dict[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """Its options by our names; a path may begin with ~ or name environment variables."""
        found = {ours: self.values[key] for ours, key in FIELDS.items() if self.values.get(key)}
        for name in ("creds", "nkey", "tlscert", "tlskey", "tlsca"):
            if name in found:
                found[name] = os.path.expandvars(Path(str(found[name])).expanduser())
        return found

    @property
    def shown_safely(self) -> dict[str, Any]:
        """Its values without secrets, those in URLs included; empty ones are left out."""
        shown = {key: "***" if key in SECRETS else value for key, value in self.values.items() if value}
        if isinstance(url := shown.get("url"), str):
            shown["url"] = without_secrets(url)
        return shown


def directory_of(program: str) -> Path:
    """The directory in which that program keeps its contexts."""
    configured = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configured) if configured else Path.home() / ".config") / program


def path_of(name: str, program: str = "jetraft") -> Path:
    """The file of a context. Raises CommandError for a name that is no file's."""
    if not name or len(name) > NAME_MAX or name.startswith(".") or not all(c.isalnum() or c in "-_." for c in name):
        raise CommandError(f"{name!r} is no name of a context: use letters, digits, - and _")
    return directory_of(program) / "context" / f"{name}.json"


def every() -> list[Context]:
    """All that can be read, by name; an own one comes before one of `nats` with the same name."""
    found: dict[str, Context] = {}
    for program in ("nats", "jetraft"):
        for path in sorted((directory_of(program) / "context").glob("*.json")):
            try:
                found[path.stem] = _read(path, program)
            except CommandError:  # `context ls` must not fail for a file that no command uses
                continue
    return [found[name] for name in sorted(found)]


def named(name: str) -> Context:
    """The context of that name. Raises CommandError."""
    for program in ("jetraft", "nats"):
        path = path_of(name, program)
        if path.exists():
            return _read(path, program)
    raise CommandError(f"there is no context {name}: `jetraft context ls` lists them")


def selected() -> str:
    """The name of the selected context, empty when there is none."""
    for program in ("jetraft", "nats"):
        try:
            name = (directory_of(program) / "context.txt").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if name and any(path_of(name, each).exists() for each in ("jetraft", "nats")):
            return name
    return ""


def save(name: str, values: dict[str, Any]) -> Path:
    """Write an own context, whole or not at all. Raises CommandError."""
    path = path_of(name)
    _write(path, json.dumps(values, indent=2) + "\n")
    return path


def select(name: str) -> None:
    """Make it the one that is used when the command line names none. Raises CommandError."""
    _write(directory_of("jetraft") / "context.txt", f"{named(name).name}\n")


def remove(name: str) -> None:
    """Remove an own context. Raises CommandError."""
    found = named(name)
    if found.origin != "jetraft":
        raise CommandError(f"context {name} belongs to nats: remove it with `nats context rm {name}`")
    try:
        found.path.unlink()
    except OSError as error:
        raise CommandError(f"{found.path}: {error.strerror}") from None


def _read(path: Path, program: str) -> Context:
    try:
        with path.open("rb") as file:
            values = json.loads(file.read(BYTES_MAX))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise CommandError(f"{path}: the context is not JSON") from None
    if not isinstance(values, dict):
        raise CommandError(f"{path}: the context is not an object")
    return Context(name=path.stem, origin=program, path=path, values=values)


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
