"""The wheel: compiled modules for every .pyx, both packages, no tests, and it works where no source is."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.harness.server import ROOT

FOLDERS = ("api", "cluster", "raft", "store")
pytestmark = pytest.mark.timeout(900)  # a compiler beside other tests on two cores


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that the checkout stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")
    for name in ("src", *FOLDERS):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    translated = ROOT / "build" / "cython"  # half of the time; what is older than its source is translated again
    if translated.exists():
        shutil.copytree(translated, source / "build" / "cython")
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of these sources, compiled quickly rather than well."""
    directory = tmp_path_factory.mktemp("wheel")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", str(directory), str(source)],
        check=True,
        capture_output=True,
        timeout=800,
        env={**environment, "CFLAGS": "-O0"},
    )
    return next(directory.glob("jetraft-*.whl"))


@pytest.mark.slow("compiles every module")
def test_every_extension_is_in_the_wheel_compiled(source: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for folder in FOLDERS:
        for path in (source / folder).rglob("*.pyx"):
            stem = "jetraft/" + str(path.relative_to(source).with_suffix(""))
            assert any(name.startswith(stem + ".") and name.endswith(".so") for name in names), stem
            for face in (".pyi", ".pxd"):
                assert not path.with_suffix(face).exists() or f"{stem}{face}" in names


def test_every_module_is_in_the_wheel(source: Path, wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        "jetraft/" + str(path.relative_to(source))
        for folder in FOLDERS
        for path in (source / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    expected |= {str(path.relative_to(source / "src")) for path in (source / "src" / "pyspark_jetstream").rglob("*.py")}
    assert expected <= names
    assert {"jetraft/py.typed", "jetraft/__main__.py", "pyspark_jetstream/py.typed"} <= names


def test_the_wheel_has_no_tests_and_no_top_level_folders_of_ours(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"jetraft", "pyspark_jetstream"}


def test_the_installed_wheel_starts(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, system_site_packages=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = tmp_path / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    (site / "dependencies.pth").write_text(sysconfig_purelib(), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    outcome = subprocess.run(
        [str(python), "-m", "jetraft", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith("jetraft")


def sysconfig_purelib() -> str:
    """Where this interpreter's own packages are: the wheel's dependencies come from there."""
    import sysconfig  # noqa: PLC0415  (only here)

    return sysconfig.get_paths()["purelib"]
