"""The artefacts, made once for all tests of a run: by the steps of deploy/Dockerfile, and by what builds an sdist.

Compiling takes minutes, so what `make build` has translated and compiled, by the same setup.py, lies where the step
looks for it; what is older than its source is made again, and one module is left out here. Packages are those that the
tests run with, packed into wheels again: their hashes are others than those of deploy/requirements.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

import attrs
from packaging.requirements import Requirement

from tests.artefacts.dockerfile import Construction, Instruction, Stage, StepFailedError, stages_of
from tests.artefacts.environments import bare_environment, built_objects, closure, files_of, packed, pinned
from tests.harness.server import ROOT

DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
FOLDERS: Final = ("api", "cluster", "raft", "store")
OF_THE_SERVER: Final = ("cython", "installer", "build", "server")
COMPILED_HERE: Final = "_chunks"  # it includes a header of ours
OF_THE_IMAGE: Final = ({"extra": ""}, {"extra": "cli"})  # what deploy/requirements/server.txt is made of
SDIST_S: Final = 300.0


@attrs.frozen(kw_only=True, slots=True)
class Artefacts:
    """Where they are."""

    root: Path
    server_wheel: Path
    spark_wheel: Path
    server_sdist: Path
    spark_sdist: Path
    steps_done: tuple[int, ...]  # lines of the Dockerfile
    steps_passed_over: tuple[int, ...]

    def stage(self, name: str) -> Path:
        """The directory of a stage of the Dockerfile."""
        return self.root / "stages" / name


def artefacts_in(shared: Path) -> Artefacts:
    """Make them, or take those that another worker of this run has made. Raises StepFailedError."""
    shared.mkdir(exist_ok=True)
    told, failed = shared / "artefacts.json", shared / "failed"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if failed.exists():
            raise StepFailedError(failed.read_text(encoding="utf-8"))
        if not told.exists():
            try:
                told.write_text(json.dumps(made_in(shared)), encoding="utf-8")
            except StepFailedError as error:
                failed.write_text(str(error), encoding="utf-8")
                raise
    facts = json.loads(told.read_text(encoding="utf-8"))
    paths = {name: shared / facts[name] for name in ("server_wheel", "spark_wheel", "server_sdist", "spark_sdist")}
    done, passed_over = tuple(facts["steps_done"]), tuple(facts["steps_passed_over"])
    return Artefacts(root=shared, steps_done=done, steps_passed_over=passed_over, **paths)


def made_in(root: Path) -> dict[str, object]:
    """Make all of them; returns the fields of Artefacts, paths below `root`."""
    context = build_context(root / "context")
    construction = construct(root, context, [stage for stage in stages() if stage.name in OF_THE_SERVER])
    wheels = construction.directory("build") / "wheels"
    server_sdist, spark_sdist = source_distributions(root)
    return {
        "server_wheel": str(next(wheels.glob("jetraft-*.whl")).relative_to(root)),
        "spark_wheel": str(next(wheels.glob("pyspark_jetstream-*.whl")).relative_to(root)),
        "server_sdist": str(server_sdist.relative_to(root)),
        "spark_sdist": str(spark_sdist.relative_to(root)),
        "steps_done": [step.line for step in construction.done],
        "steps_passed_over": [step.line for step in construction.passed_over],
    }


def stages() -> list[Stage]:
    """Those of deploy/Dockerfile."""
    return stages_of(DOCKERFILE.read_text(encoding="utf-8"))


def construct(root: Path, context: Path, wanted: Sequence[Stage]) -> Construction:
    """Carry stages out, in `root`/stages. Raises StepFailedError."""
    construction = Construction(
        context=context,
        root=root / "stages",
        arguments={"PIP_NO_INDEX": "1"},
        environment=step_environment(root),
        before=lend_objects,
    )
    construction.carry_out(wanted)
    return construction


def step_environment(root: Path) -> dict[str, str]:
    """Of every step: `python3` is the Python of the tests, for which the objects were compiled."""
    programs = root / "bin"
    programs.mkdir(exist_ok=True)
    python3 = programs / "python3"
    base = getattr(sys, "_base_executable", sys.executable)
    python3.write_text(f'#!/bin/sh\nexec {base} "$@"\n', encoding="utf-8")
    python3.chmod(0o755)
    quick = {"CFLAGS": "-O0", "PIP_NO_COMPILE": "1"}  # rather than good
    return bare_environment() | {"PATH": f"{programs}:{os.environ['PATH']}"} | quick


def lend_objects(step: Instruction, own: Path) -> None:
    """What `make build` has made, before the step that compiles."""
    if "build_ext" not in step.rest:
        return
    copy_objects(own / "source")
    for name, path in files_of(distribution("Cython")):  # each has the date of its installation: objects would be older
        for copy in own.glob(f"builder/lib/python3*/site-packages/{name}"):
            shutil.copystat(path, copy)


def copy_objects(source: Path) -> None:
    """Put them below a copy of the sources."""
    left_out = shutil.ignore_patterns(f"{COMPILED_HERE}.*")
    for built in built_objects():
        if (ROOT / "build" / built).exists():
            shutil.copytree(ROOT / "build" / built, source / "build" / built, ignore=left_out)


def build_context(directory: Path) -> Path:
    """What the Dockerfile copies, with a wheelhouse of the packages that are installed here."""
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE", "src", *FOLDERS):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).symlink_to(ROOT / name)
    needed = map(Requirement, distribution("jetraft").requires or ())
    given = [one for one in needed if one.marker is None or any(map(one.marker.evaluate, OF_THE_IMAGE))]
    fill_deploy(directory / "deploy", {"server.txt": closure(given).values(), "build.txt": building()})
    return directory


def spark_context(directory: Path) -> Path:
    """A context for the stages of the Spark job: exactly the packages that deploy/requirements names for it."""
    lines = (ROOT / "deploy" / "requirements" / "spark.txt").read_text(encoding="utf-8").splitlines()
    names = [line.partition("==")[0] for line in lines if "==" in line]
    fill_deploy(directory / "deploy", {"spark.txt": map(distribution, names), "build.txt": building()})
    return directory


def building() -> list[Distribution]:
    """What setup.py needs."""
    return [distribution(name) for name in ("setuptools", "Cython")]


def fill_deploy(deploy: Path, requirements: Mapping[str, Iterable[Distribution]]) -> None:
    """The files of deploy/, with packages that are installed here as its wheelhouse and its requirements."""
    for folder in (deploy / "wheelhouse", deploy / "requirements"):
        folder.mkdir(parents=True)
    for path in (ROOT / "deploy").iterdir():
        if path.is_file():
            (deploy / path.name).symlink_to(path)
    for name, packages in requirements.items():
        wheels = [packed(each, deploy / "wheelhouse") for each in packages]
        (deploy / "requirements" / name).write_text(pinned(wheels), encoding="utf-8")


def source_distributions(root: Path) -> tuple[Path, Path]:
    """Both, built by setuptools from copies of the sources."""
    source, made = root / "sdist", root / "dist"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")
    for name in ("src", *FOLDERS):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    code = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"
    for place in (source, source / "src" / "pyspark-jetstream"):
        words = [sys.executable, "-c", code, str(made)]
        done = subprocess.run(
            words, cwd=place, env=bare_environment(), capture_output=True, text=True, check=False, timeout=SDIST_S
        )
        if done.returncode:
            raise StepFailedError(f"no source distribution of {place}: {done.stderr[-2000:]}")
    return next(made.glob("jetraft-*.tar.gz")), next(made.glob("pyspark_jetstream-*.tar.gz"))
