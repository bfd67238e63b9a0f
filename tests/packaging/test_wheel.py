"""The wheels: jetraft with compiled modules for every .pyx and no tests; pyspark-jetstream in Python only.

Each works where no source is, and without the other.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.harness.server import ROOT

FOLDERS = ("api", "cluster", "raft", "store")
COMPILED_HERE = "_fifo"
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
    # What `make build` has translated and compiled, by this setup.py: what is older than its source is made again, and
    # what is left out here.
    left_out = shutil.ignore_patterns(f"{COMPILED_HERE}.*")
    for built in ("cython", f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"):
        if (ROOT / "build" / built).exists():
            shutil.copytree(ROOT / "build" / built, source / "build" / built, ignore=left_out)
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
    assert expected <= names
    assert {"jetraft/py.typed", "jetraft/__main__.py"} <= names


def test_the_wheel_has_no_tests_and_no_top_level_folders_of_ours(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"jetraft"}


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


@pytest.fixture(scope="module")
def spark_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the Spark data source, built from a copy of its sources."""
    source = tmp_path_factory.mktemp("spark") / "src"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "jetraft")
    shutil.copytree(ROOT / "src", source, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / "LICENSE", source.parent / "LICENSE")
    directory = tmp_path_factory.mktemp("wheel")
    options = ["--no-build-isolation", "--no-deps", "-w", str(directory)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(source / "pyspark-jetstream")],
        check=True,
        capture_output=True,
        timeout=300,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    return next(directory.glob("pyspark_jetstream-*.whl"))


def test_the_spark_wheel_is_python_only_and_whole(spark_wheel: Path) -> None:
    assert spark_wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(spark_wheel).namelist())
    package = ROOT / "src" / "pyspark_jetstream"
    expected = {str(path.relative_to(ROOT / "src")) for path in package.rglob("*.py")} | {"pyspark_jetstream/py.typed"}
    assert {name for name in names if ".dist-info/" not in name} == expected
    metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
    needs = [line for line in zipfile.ZipFile(spark_wheel).read(metadata).decode().splitlines() if "Requires-" in line]
    assert sorted(line.partition(": ")[2] for line in needs if "extra ==" not in line) == [
        ">=3.11",
        "attrs>=24",
        "pyarrow>=15",
    ]


def test_the_spark_wheel_is_found_by_spark_without_the_server(spark_wheel: Path, tmp_path: Path) -> None:
    """As one archive on the path, which is what `--py-files` makes of it."""
    code = "import sys; sys.modules['jetraft'] = None;"
    code += "from importlib import import_module; from pkgutil import iter_modules;"
    code += "names = [module.name for module in iter_modules() if module.name.startswith('pyspark_')];"
    code += "source = import_module(names[0]).DefaultSource; import pyspark_jetstream.write.sinks;"
    code += "print(names, source.name(), source.__module__, sys.modules[source.__module__].__file__)"
    archive = shutil.copy(spark_wheel, tmp_path / "pyspark_jetstream.zip")
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": os.pathsep.join([str(archive), sysconfig_purelib()])},
        cwd=tmp_path,
    )
    place = f"{archive}/pyspark_jetstream/source.py"
    assert shown.stdout.strip() == f"['pyspark_jetstream'] jetstream pyspark_jetstream.source {place}"


def sysconfig_purelib() -> str:
    """Where this interpreter's own packages are: the wheel's dependencies come from there."""
    import sysconfig  # noqa: PLC0415  (only here)

    return sysconfig.get_paths()["purelib"]
