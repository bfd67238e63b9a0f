"""The client library nats.c: the programs in c/ print TAP, every line of it is a claim."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness.server import Server

HERE = Path(__file__).parent / "c"
PROGRAMS = ("core", "jetstream", "kv")
RESULT = re.compile(r"^(not )?ok \d+ - (.*)$")
COMPILER = os.environ.get("CC", "cc")


def is_installed() -> bool:
    """Whether a program can be linked with the library."""
    if shutil.which(COMPILER) is None:
        return False
    with tempfile.TemporaryDirectory() as directory:
        words = [COMPILER, "-x", "c", "-", "-o", f"{directory}/probe", "-lnats"]
        source = "#include <nats/nats.h>\nint main(void) { return nats_GetVersion() == 0; }\n"
        return subprocess.run(words, input=source, text=True, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="nats.c is not installed (Debian: apt-get install libnats-dev)"),
]


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the compiled programs."""
    directory = tmp_path_factory.mktemp("nats-c")
    for program in PROGRAMS:
        words = [COMPILER, "-O1", "-Wall", "-Wextra", str(HERE / f"{program}.c"), "-o", program, "-lnats"]
        subprocess.run(words, cwd=directory, check=True)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_claim_of_the_program_holds(
    binaries: Path, servers: Sequence[Server], replicas: int, program: str
) -> None:
    words = [str(binaries / program), str(replicas), *[server.url for server in servers]]
    outcome = subprocess.run(words, capture_output=True, text=True, timeout=800, check=False)
    lines = outcome.stdout.splitlines()
    assert lines, outcome.stderr
    planned = int(lines[0].removeprefix("1.."))
    results = [match for match in map(RESULT.match, lines) if match]
    failed = [match.group(2) for match in results if match.group(1)]
    assert not failed, "\n".join(failed)
    assert (len(results), outcome.returncode) == (planned, 0), outcome.stdout + outcome.stderr
