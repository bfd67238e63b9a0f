"""Plays scenarios. `python -m tests.scenarios.perform` writes them again: read the difference before you keep it.

A scenario is text: lines that begin with `>` are steps, indented lines say what came of them, everything else is for
the reader. The real engine plays the steps (`stage`: members whose messages are moved by hand; `cluster`: whole nodes),
and a scenario stands when the same comes of them.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.scenarios.cluster import Cluster
from tests.scenarios.stage import Stage

FOLDER = Path(__file__).parent
EVENT = "    "


def perform(text: str) -> str:
    """The scenario with what really comes of its steps."""
    return "\n".join(_performed(text)) + "\n"


def _performed(text: str) -> Iterator[str]:
    stage: Stage | Cluster | None = None
    for line in text.splitlines():
        if line.startswith(EVENT):
            continue
        yield line
        if line.startswith("> "):
            stage = stage or (Cluster() if line.startswith("> cluster ") else Stage())
            yield from stage.step(line[2:])


def main() -> int:
    for path in sorted(FOLDER.glob("*.txt")):
        text = path.read_text()
        performed = perform(text)
        if performed != text:
            path.write_text(performed)
            print(f"{path.name} is another one now")  # noqa: T201  (a command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
