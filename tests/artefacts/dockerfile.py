"""deploy/Dockerfile without an engine: its stages are carried out in directories, as far as they need no distribution.

A stage is a directory. COPY copies into it, and RUN is run by the shell with the paths that the Dockerfile itself makes
(`OWN`) moved into it; everything else is this machine's. Steps that change the base are not run: they are those that
call one of `OF_THE_BASE`, and a test names them all.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

OWN: Final = ("opt", "source", "wheels", "wheelhouse", "requirements", "builder", "data", "checkpoint", "etc/jetraft")
OF_THE_BASE: Final = ("apt-get", "useradd")
IGNORED: Final[tuple[str, ...]] = (
    "__pycache__",
    "*.so",
    "*.egg-info",
)  # those of .dockerignore that are in what is copied
STEP_S: Final = 800.0  # a compiler beside other tests on two cores
_PATH: Final = re.compile(rf"(?<![\w./-])/(?=(?:{'|'.join(OWN)})(?![\w-]))")
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}|\$(\w+)")


class StepFailedError(Exception):
    """A RUN step of the Dockerfile has failed; the message has its text and what it printed."""


@attrs.frozen(kw_only=True, slots=True)
class Instruction:
    """A line of the Dockerfile, continuations joined."""

    word: str  # RUN, COPY, ...
    rest: str
    line: int

    @property
    def is_of_the_base(self) -> bool:
        """Whether it is a step that changes the distribution."""
        return self.word == "RUN" and any(program in self.rest for program in OF_THE_BASE)


@attrs.frozen(kw_only=True, slots=True)
class Stage:
    """What is between two lines FROM."""

    name: str
    base: str  # another stage, or an image
    instructions: tuple[Instruction, ...]


def stages_of(text: str) -> list[Stage]:
    """The stages of a Dockerfile, in order."""
    found: list[tuple[str, str, list[Instruction]]] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, first in lines:
        line = first
        while line.endswith("\\"):
            line = line[:-1] + next(lines)[1]
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append((name, base, []))
        elif found and word and not word.startswith("#"):
            found[-1][2].append(Instruction(word=word, rest=rest.strip(), line=number))
    return [Stage(name=name, base=base, instructions=tuple(steps)) for name, base, steps in found]


@attrs.define(eq=False)
class Construction:
    """Stages that are carried out below one directory. `before` may add to a stage before one of its RUN steps."""

    context: Path
    root: Path
    arguments: Mapping[str, str] = attrs.field(factory=dict)  # ARG, as `docker build --build-arg`
    environment: Mapping[str, str] = attrs.field(factory=dict)  # of this machine, for every step
    before: Callable[[Instruction, Path], None] = lambda _step, _root: None
    done: list[Instruction] = attrs.field(factory=list)  # the RUN steps that were carried out
    passed_over: list[Instruction] = attrs.field(factory=list)
    _variables: dict[str, dict[str, str]] = attrs.field(factory=dict)

    def directory(self, stage: str) -> Path:
        """Where a stage is."""
        return self.root / stage

    def carry_out(self, stages: Sequence[Stage]) -> None:
        """Carry out these stages. Raises StepFailedError."""
        for stage in stages:
            own = self.directory(stage.name)
            variables = dict(self._variables.get(stage.base, {}))
            if stage.base in self._variables:
                shutil.copytree(self.directory(stage.base), own, symlinks=True)
            else:
                own.mkdir(parents=True)
            place = own
            for step in stage.instructions:
                match step.word:
                    case "ARG":
                        name, _, default = step.rest.partition("=")
                        variables[name] = self.arguments.get(name, default)
                    case "ENV":
                        for setting in shlex.split(step.rest):
                            name, _, value = setting.partition("=")
                            variables[name] = moved(substituted(value, variables), own)
                    case "WORKDIR":
                        place = own / step.rest.lstrip("/")
                        place.mkdir(parents=True, exist_ok=True)
                    case "COPY":
                        self._copy(step, place, own)
                    case "RUN":
                        self._run(step, place, own, variables)
            self._variables[stage.name] = variables

    def _copy(self, step: Instruction, place: Path, own: Path) -> None:
        *given, last = step.rest.split()
        source, ignored = self.context, IGNORED
        if given[0].startswith("--from="):
            source, ignored = self.directory(given.pop(0).removeprefix("--from=")), ()
        into = own / last.lstrip("/") if last.startswith("/") else place / last
        for name in given:
            found = source / name.lstrip("/")
            if found.is_dir():  # what is in it
                for link in (path for path in into.rglob("*") if path.is_symlink()):
                    link.unlink()  # copytree replaces files, and no links
                shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*ignored))
            else:
                target = into / found.name if last.endswith("/") or len(given) > 1 else into
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, target)

    def _run(self, step: Instruction, place: Path, own: Path, variables: Mapping[str, str]) -> None:
        if step.is_of_the_base:
            self.passed_over.append(step)
            return
        self.before(step, own)
        done = subprocess.run(
            ["/bin/sh", "-c", moved(step.rest, own)],
            cwd=place,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP_S,
        )
        if done.returncode:
            shown = (done.stdout + done.stderr)[-4000:]
            raise StepFailedError(f"deploy/Dockerfile:{step.line}: RUN {step.rest}\nstatus {done.returncode}: {shown}")
        self.done.append(step)


def moved(text: str, root: Path) -> str:
    """The text with the paths that the Dockerfile makes below this directory."""
    return _PATH.sub(f"{root}/", text)


def substituted(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables, those of this machine included."""
    return _VARIABLE.sub(
        lambda found: variables.get(found[1] or found[2], os.environ.get(found[1] or found[2], "")), text
    )
