"""Wheels and source distributions: jetraft with compiled modules for every .pyx, the Spark source in Python only.

Each works where no source is, and without the other.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.artefacts.building import FOLDERS, SDIST_S, Artefacts, copy_objects
from tests.artefacts.environments import bare_environment, requirements_in
from tests.harness.server import ROOT

SOURCES = (".py", ".pyx", ".pxd", ".pyi", ".h", ".html", ".css", ".js", ".svg")
STATIC = "api/monitor/ui/static"
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),  # a compiler beside other tests on two cores
    pytest.mark.slow("the first test of a run that needs the artefacts makes them"),
]


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_extension_is_in_the_wheel_compiled(artefacts: Artefacts) -> None:
    names = names_in(artefacts.server_wheel)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.pyx"):
            stem = "jetraft/" + str(path.relative_to(ROOT).with_suffix(""))
            assert any(name.startswith(stem + ".") and name.endswith(".so") for name in names), stem
            for face in (".pyi", ".pxd"):
                assert not path.with_suffix(face).exists() or f"{stem}{face}" in names


def test_every_module_is_in_the_wheel_and_nothing_else_of_ours(artefacts: Artefacts) -> None:
    names = names_in(artefacts.server_wheel)
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)
    assert {f"jetraft/{path.relative_to(ROOT)}" for path in found} <= names
    assert {"jetraft/py.typed", "jetraft/__main__.py"} <= names
    assert {f"jetraft/{STATIC}/{path.name}" for path in (ROOT / STATIC).iterdir()} <= names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"jetraft"}


def test_a_wheel_that_is_built_from_the_source_distribution_is_the_same(artefacts: Artefacts, tmp_path: Path) -> None:
    with tarfile.open(artefacts.server_sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SOURCES:
                assert (source / "src" / "jetraft" / path.relative_to(ROOT)).is_file(), path
    assert not [path for path in source.rglob("*") if path.suffix in (".so", ".c") or "tests" in path.parts]
    copy_objects(source)
    words = ["wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), str(source)]
    environment = bare_environment() | {"CFLAGS": "-O0"}
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, capture_output=True, timeout=800, env=environment)
    (wheel,) = tmp_path.glob("*.whl")
    assert names_in(wheel) == names_in(artefacts.server_wheel)


def test_without_its_cython_sources_nothing_is_built(artefacts: Artefacts, tmp_path: Path) -> None:
    """As from a source distribution that lacks them: the wheel would have Python only, and could not be imported."""
    with tarfile.open(artefacts.server_sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for path in source.rglob("*.pyx"):
        path.unlink()
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SDIST_S,
        env=bare_environment(),
        cwd=source,
    )
    assert done.returncode == 1
    assert "jetraft: these sources have no .pyx files" in done.stderr


def test_the_spark_wheel_is_python_only_and_whole(artefacts: Artefacts) -> None:
    wheel = artefacts.spark_wheel
    assert wheel.name.endswith("-py3-none-any.whl")
    package = ROOT / "src" / "pyspark_jetstream"
    expected = {str(path.relative_to(ROOT / "src")) for path in package.rglob("*.py")} | {"pyspark_jetstream/py.typed"}
    assert {name for name in names_in(wheel) if ".dist-info/" not in name} == expected
    assert sorted(map(str, requirements_in(wheel))) == ["attrs>=24", "pyarrow>=15"]


def test_the_spark_source_distribution_has_what_its_wheel_has(artefacts: Artefacts) -> None:
    with tarfile.open(artefacts.spark_sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in names_in(artefacts.spark_wheel) if ".dist-info/" not in name} <= names
    assert "LICENSE" in names


def test_the_spark_wheel_is_found_by_spark_without_the_server(artefacts: Artefacts, tmp_path: Path) -> None:
    """As one archive on the path, which is what `--py-files` makes of it."""
    code = "import sys; sys.modules['jetraft'] = None;"
    code += "from importlib import import_module; from pkgutil import iter_modules;"
    code += "names = [module.name for module in iter_modules() if module.name.startswith('pyspark_')];"
    code += "source = import_module(names[0]).DefaultSource; import pyspark_jetstream.write.sinks;"
    code += "print(names, source.name(), source.__module__, sys.modules[source.__module__].__file__)"
    archive = shutil.copy(artefacts.spark_wheel, tmp_path / "pyspark_jetstream.zip")
    path = os.pathsep.join([str(archive), sysconfig.get_paths()["purelib"]])  # and what it depends on
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": path},
        cwd=tmp_path,
    )
    place = f"{archive}/pyspark_jetstream/source.py"
    assert shown.stdout.strip() == f"['pyspark_jetstream'] jetstream pyspark_jetstream.source {place}"
