"""`python -m tests.fuzz TARGET [libFuzzer's options]`: each input is made from those that reached new code before it.

Without a target the names of all are printed. Python is instrumented as it is imported, the compiled modules when they
were built (tests/fuzz/run.sh).
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import atheris

SLOW_S: Final = 10  # an input that takes so long is a finding
INPUT_BYTES_MAX: Final = 2048
MEMORY_MB_MAX: Final = 2048

with atheris.instrument_imports(include=["jetraft"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz one target. Ends with a status other than 0 at the first finding, and leaves the input in a file."""
    if len(sys.argv) < 2:
        print("\n".join(TARGETS))  # noqa: T201  (a command)
        return
    name, *options = sys.argv[1:]
    limits = [f"-max_len={INPUT_BYTES_MAX}", f"-timeout={SLOW_S}", f"-rss_limit_mb={MEMORY_MB_MAX}"]
    with TemporaryDirectory() as corpus:
        for number, data in enumerate(TARGETS[name].seeds):
            (Path(corpus) / str(number)).write_bytes(data)
        atheris.Setup([f"fuzz-{name}", *limits, *options, corpus], TARGETS[name].run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
