"""`python -m pyspark_jetstream doctor`: checks what a query needs and prints a line for each check."""

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import attrs

from pyspark_jetstream.errors import BadOptionError, JetStreamSourceError
from pyspark_jetstream.java import ensure_java, java_version

PYSPARK_VERSION_MIN = (4, 2)
LOOKUP_TIMEOUT_S = 60.0
CHECK_RETRY_S = 3.0

# The relevant part of Spark's own lookup, for the interpreter in which Spark runs it.
LOOKUP = """
from importlib import import_module
from pkgutil import iter_modules
for module in iter_modules():
    if module.name.startswith("pyspark_"):
        try:
            found = hasattr(import_module(module.name), "DefaultSource")
        except Exception as error:
            print(f"broken {module.name}: {type(error).__name__}: {error}")
        else:
            print(f"{'found' if found else 'empty'} {module.name}")
"""


@attrs.frozen(kw_only=True, slots=True)
class Finding:
    """The outcome of one check."""

    subject: str
    ok: bool
    text: str

    def line(self) -> str:
        """Return the line to print."""
        return f"{'ok  ' if self.ok else 'FAIL'} {self.subject}: {self.text}"


def findings(servers: str | None, stream: str | None) -> Iterator[Finding]:
    """Run the checks and yield the finding of each."""
    yield _guarded("java", check_java)
    yield _guarded("pyspark", check_pyspark)
    yield _guarded("pyarrow", lambda: f"version {importlib.metadata.version('pyarrow')}" if _import("pyarrow") else "")
    yield _guarded("PYSPARK_PYTHON", check_python)
    if servers is None:
        yield Finding(subject="servers", ok=True, text="not checked (give --servers nats://host:port)")
    else:
        yield _guarded("servers", lambda: check_servers(servers, stream))


def _guarded(subject: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(subject=subject, ok=True, text=check())
    except (JetStreamSourceError, ImportError, OSError, subprocess.SubprocessError) as error:
        return Finding(subject=subject, ok=False, text=str(error))


def _import(name: str) -> bool:
    importlib.import_module(name)
    return True


def check_java() -> str:
    """Return the version and path of the Java that Spark uses. Raises JavaMissingError."""
    java = ensure_java()
    return f"Java {java_version(java)} at {java}"


def check_pyspark() -> str:
    """Return the version of pyspark. Raises JetStreamSourceError when it is too old, ImportError when it is missing."""
    _import("pyspark")
    version = importlib.metadata.version("pyspark")
    if tuple(int(part) for part in version.split(".")[:2]) < PYSPARK_VERSION_MIN:
        raise JetStreamSourceError(f"version {version} is too old: 4.2 or later is needed")
    return f"version {version}"


def check_python() -> str:
    """Run Spark's lookup in the interpreter that Spark uses; returns its path. Raises JetStreamSourceError."""
    name = os.environ.get("PYSPARK_PYTHON") or "python3"
    python = shutil.which(name)
    if python is None:
        raise JetStreamSourceError(f"{name} does not exist; set PYSPARK_PYTHON={sys.executable}")
    answer = subprocess.run(  # noqa: S603  (the interpreter that Spark would start)
        [python, "-c", LOOKUP], capture_output=True, text=True, timeout=LOOKUP_TIMEOUT_S, check=False
    )
    lines = answer.stdout.splitlines()
    broken = [line for line in lines if line.startswith("broken")]
    if broken:
        raise JetStreamSourceError(f"{python}: Spark finds no data source, because an import fails: {broken[0]}")
    if "found pyspark_jetstream" not in lines:
        raise JetStreamSourceError(
            f"{python} does not have pyspark_jetstream with pyspark: set PYSPARK_PYTHON={sys.executable}, or call "
            "pyspark_jetstream.register(spark) where Spark's lookup cannot see the package (--py-files, Spark Connect)"
        )
    return f"{python} finds the source"


def check_servers(servers: str, stream: str | None) -> str:
    """Return the servers that answer, and how the stream can be read. Raises JetStreamSourceError."""
    from pyspark_jetstream.client import ConnectionCache  # noqa: PLC0415  (only for this check)
    from pyspark_jetstream.leader import Leader  # noqa: PLC0415
    from pyspark_jetstream.options import Access, parse_servers  # noqa: PLC0415
    from pyspark_jetstream.replicas import survey  # noqa: PLC0415

    try:
        access = Access(servers=parse_servers(servers), retry_timeout_s=CHECK_RETRY_S)
    except ValueError as error:
        raise BadOptionError(str(error)) from error
    found = survey(access)
    if not found:
        raise JetStreamSourceError(f"none of {servers} answers")
    text = ", ".join(f"{server.name} at {server.url}" for server in found)
    if stream is None:
        return text
    connections = ConnectionCache()
    try:
        view = Leader(access, stream, connections).view()
    finally:
        connections.close()
    how = "any replica" if view.allow_direct else "the leader only (allow_direct is off)"
    return f"{text}; stream {stream} has {view.messages} messages and is read from {how}"
