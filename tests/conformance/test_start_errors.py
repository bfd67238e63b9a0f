"""What both servers say when they cannot start: the reason, in the same words."""

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.server import Kind, command, environment

pytestmark = [pytest.mark.reference]
KINDS: tuple[Kind, Kind] = ("reference", "jetraft")
CASES = {
    "clients": ("-p", "TAKEN"),
    "monitoring": ("-p", "-1", "-m", "TAKEN"),
    "peers": ("-p", "-1", "--cluster", f"nats://{HOST}:TAKEN", "--cluster_name", "C"),
    "another machine": ("-a", "192.0.2.1", "-p", "-1"),
    "no directory": ("-p", "-1", "-js", "-sd", "FILE"),
}


UNPARSED = (
    'port: "x\n', "port: 'x\n", 'port: "x', "authorization { user: a\n", "authorization { user: a", "a = [1,2\n",
    "a = [1,2", "a = (\n x\n", ": 3\n", "= 3\n", "port:\n", 'a: "\\q"\n', 'a: "\\xZZ"\n', 'a { b: "x }\n',
    "a: [ { b: 1 ]\n", "a: [ [ 1 ]\n", '# c\nport: "x\n\n', '"a: 3\n',
)  # fmt: skip


def reason(kind: Kind, words: tuple[str, ...]) -> str:
    """The last line of a server that does not start, without what begins it."""
    done = subprocess.run(
        [*command(kind), "-a", HOST, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment(kind)},
    )
    assert done.returncode == 1, done.stderr
    fatal = [line for line in done.stderr.splitlines() if "[FTL]" in line]
    return re.sub(r"^\[\d+\] \S+ \S+ ", "", fatal[-1])


@pytest.mark.parametrize("case", CASES)
def test_says_why_as_the_reference_does(case: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with socket.create_server((HOST, 0)) as listener:
        port = str(listener.getsockname()[1])
        words = tuple(word.replace("TAKEN", port).replace("FILE", str(path)) for word in CASES[case])
        assert reason("jetraft", words) == reason("reference", words)


@pytest.mark.parametrize("text", UNPARSED)
def test_a_file_that_is_not_parsed_has_the_references_line_beside_the_place(text: str, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(text)
    said = []
    for kind in KINDS:
        done = subprocess.run(
            [*command(kind), "-t", "-c", file.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={"PATH": "/usr/bin:/bin", **environment(kind)},
        )
        assert done.returncode == 1
        said.append(done.stderr.strip())
    theirs, ours = (line.replace("\0", " ") for line in said)  # a control character is not printed here
    assert "Parse error on line" in theirs
    assert ours.startswith("jetraft: server.conf:")
    assert ours.endswith(": " + theirs.removeprefix("nats-server: "))
