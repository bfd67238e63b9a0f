"""A release: the service of systemd, the wheels that would be built, third parties and what an image contains."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server, command

UNIT = ROOT / "deploy/systemd/jetraft.service"
EXPOSURE_MAX = 20  # tenths of systemd's scale from 0 to 10: "OK" ends at 2.0
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)
HARDENED = """
import ctypes, os, sys
PR_SET_NO_NEW_PRIVS, PR_SET_MDWE, REFUSE_EXEC_GAIN = 38, 65, 1
libc = ctypes.CDLL(None)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
libc.prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)  # since Linux 6.3
os.umask(0o077)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_the_service_may_do_little() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze IS NOT INSTALLED: the exposure of the service was not looked at")
    words = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(UNIT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_without_new_rights_and_without_writable_code_serves(tmp_path: Path) -> None:
    """As NoNewPrivileges, MemoryDenyWriteExecute and UMask of the service have it."""
    launcher = tmp_path / "hardened.py"
    launcher.write_text(HARDENED, encoding="utf-8")
    server = Server("jetraft", directory=tmp_path)
    server.starter = [sys.executable, str(launcher), *command("jetraft")]
    with server, RawClient(server.address) as client:
        assert "config" in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert client.acknowledged("s", b"x")["seq"] == 1


def test_wheels_are_built_for_each_version_library_and_machine() -> None:
    words = [sys.executable, "-m", "cibuildwheel", "--platform", "linux", "--print-build-identifiers"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    versions, libraries, machines = ("311", "312", "313", "314"), ("manylinux", "musllinux"), ("x86_64", "aarch64")
    expected = {f"cp{version}-{library}_{one}" for version in versions for library in libraries for one in machines}
    assert set(done.stdout.split()) == expected


def test_third_parties_are_named_with_their_licences() -> None:
    done = subprocess.run([sys.executable, "tools/gen_notice.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run `make docs`"


def test_the_bill_of_materials_has_every_package_of_the_image_with_its_hashes(tmp_path: Path) -> None:
    listed = ROOT / "deploy/requirements/server.txt"
    out = tmp_path / "sbom.json"
    words = [sys.executable, "-m", "cyclonedx_py", "requirements", str(listed), "--output-reproducible", "-o", str(out)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    components = json.loads(out.read_text(encoding="utf-8"))["components"]
    assert {one["name"] for one in components} == set(PINNED.findall(listed.read_text(encoding="utf-8")))
    assert all(each["hashes"] for one in components for each in one["externalReferences"])
