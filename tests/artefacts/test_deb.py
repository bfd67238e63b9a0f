"""The Debian package: what is in it, and a server from nothing but its files."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.artefacts.building import Artefacts
from tests.artefacts.environments import bare_environment
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server

BUILD = ROOT / "deploy" / "debian" / "build.sh"
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),
    pytest.mark.slow("the first test of a run that needs the artefacts makes them"),
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed"),
]


def build(wheel: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHON": sys.executable, "PIP": f"{sys.executable} -m pip"}
    return subprocess.run(
        ["sh", str(BUILD), str(wheel), str(out)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def package(artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("deb")
    wheels = place / "wheels"
    wheels.mkdir()
    for wheel in (artefacts.server_wheel, artefacts.spark_wheel):
        shutil.copy(wheel, wheels)
    done = build(wheels / artefacts.server_wheel.name, place)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("root")
    subprocess.run(["dpkg-deb", "-x", str(package), str(place)], check=True)
    yield place
    shutil.rmtree(place)


def field(package: Path, name: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "-f", str(package), name], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_it_depends_on_the_python_whose_modules_it_has(package: Path, root: Path) -> None:
    major, minor = platform.python_version_tuple()[:2]
    needs = field(package, "Depends")
    assert f"python3 (>= {major}.{minor})" in needs
    assert f"python3 (<< {major}.{int(minor) + 1})" in needs
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert (root / f"usr/lib/jetraft/jetraft/store/frames/_frame{suffix}").exists()


def test_its_files_are_those_that_it_lists_and_anybody_may_read_them_but_the_configuration(
    root: Path, package: Path
) -> None:
    subprocess.run(["dpkg-deb", "-e", str(package), str(root / "DEBIAN")], check=True)
    subprocess.run(["md5sum", "--quiet", "-c", "DEBIAN/md5sums"], cwd=root, check=True)
    listed = {line.split(maxsplit=1)[1] for line in (root / "DEBIAN/md5sums").read_text().splitlines()}
    found = {
        str(path.relative_to(root)) for part in ("usr", "lib") for path in (root / part).rglob("*") if path.is_file()
    }
    assert listed == found
    assert not any("__pycache__" in path for path in found)
    assert (root / "DEBIAN/conffiles").read_text() == "/etc/jetraft/node.conf\n"
    assert (root / "etc/jetraft/node.conf").stat().st_mode & 0o777 == 0o640
    for path in found:
        mode = (root / path).stat().st_mode & 0o777
        assert mode in (0o644, 0o755), path
    owners = subprocess.run(["dpkg-deb", "-c", str(package)], check=True, capture_output=True, text=True).stdout
    assert {line.split()[1] for line in owners.splitlines()} == {"root/root"}
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", str(root / "DEBIAN" / script)], check=True)


def test_the_service_runs_what_is_installed(root: Path) -> None:
    unit = (root / "lib/systemd/system/jetraft.service").read_text()
    assert "ExecStart=/usr/bin/jetraft serve -c /etc/jetraft/node.conf\n" in unit
    launcher = root / "usr/bin/jetraft"
    assert os.access(launcher, os.X_OK)
    assert launcher.read_text().startswith("#!/usr/bin/python3 -I\n")


def test_a_server_starts_from_its_files_alone(root: Path, tmp_path: Path) -> None:
    """As on a machine where it is installed, but for the places: nothing of this environment is on the path."""
    launcher = tmp_path / "jetraft"
    modules = root / "usr/lib/jetraft"
    launcher.write_text((root / "usr/bin/jetraft").read_text().replace("/usr/lib/jetraft", str(modules)))
    server = Server("jetraft", directory=tmp_path, config=(root / "etc/jetraft/node.conf").read_text())
    server.starter = [sys.executable, "-I", str(launcher)]
    with server, RawClient(server.address) as client:
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert client.acknowledged("s", b"one")["seq"] == 1
        maps = Path(f"/proc/{server.running.pid}/maps").read_text()
        assert str(modules) in maps
        assert str(ROOT / "store") not in maps
    for command in ("stream", "backup"):  # of the extras `cli` and `tools`
        words = [sys.executable, "-I", str(launcher), command, "--help"]
        done = subprocess.run(words, env=bare_environment(), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_wheel_for_another_python_is_refused(artefacts: Artefacts, tmp_path: Path) -> None:
    other = tmp_path / artefacts.server_wheel.name.replace("-cp3", "-cp9")
    shutil.copy(artefacts.server_wheel, other)
    shutil.copy(artefacts.spark_wheel, tmp_path)
    done = build(other, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"make deb: {other.name} is not for ")
    assert not list(tmp_path.glob("*.deb"))
