"""Prints what the images install, one requirement a word: to build the package, to run it, and for its Spark source."""

import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Read the pyproject.toml of both distributions."""
    server = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    source = tomllib.loads((ROOT / "src" / "pyspark-jetstream" / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [requirement for each in (server, source) for requirement in requirements(each)]
    wanted += source["project"]["optional-dependencies"]["spark"]
    sys.stdout.write("\n".join(dict.fromkeys(wanted)) + "\n")


def requirements(distribution: dict[str, Any]) -> list[str]:
    """What builds and runs it."""
    return [*distribution["build-system"]["requires"], *distribution["project"]["dependencies"]]


if __name__ == "__main__":
    main()
