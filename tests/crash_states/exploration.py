"""One seed: a life, and crashes after its operations, each judged, some of them followed by a second and a third.

A crash after a crash comes during the opening, or while the groups that were found go on for a few steps; the life
itself is crashed and goes on, too. What a crash does depends on the seed and on the number of the operation alone, so
each can be repeated without the others.
"""

import traceback
from collections import Counter
from random import Random
from typing import Final

import attrs

from tests.crash_states.crash_models import CrashModel, copied, crashed, drawn
from tests.crash_states.machine import Machine, PowerCutError, WatchedDisk, new_machine
from tests.crash_states.product import Node, Setup
from tests.crash_states.promises import Promise
from tests.crash_states.verification import Found, ViolationError, verify
from tests.doubles.lossy_tree import LossyDirectory

STEPS: Final = 160
EXPLORED: Final = 0.5  # the share of operations after which there is a crash
FOLLOWED: Final = 0.35  # the share of crashes that are followed by another
IN_OPENING: Final = 0.5  # the share of these that come during the opening
CRASHES_MAX: Final = 4  # one after the other
STEPS_BETWEEN: Final = 6
OPERATIONS_BETWEEN: Final = 25


@attrs.frozen(kw_only=True)
class Violation:
    """What a crash left that it must not."""

    seed: int
    operation: int
    models: tuple[str, ...]  # of the crashes since the life was left, in order
    problem: str

    @property
    def command(self) -> str:
        """Repeats it."""
        return f"python -m tests.crash_states --first {self.seed} --at {self.operation}"

    def __str__(self) -> str:
        crashes = ", then ".join(self.models) or "in the life itself"
        return f"seed {self.seed}, operation {self.operation} ({crashes}): {self.problem}\n  {self.command}"


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of one seed."""

    seed: int
    setup: str
    states: Counter[str]  # by the model of the last crash
    depths: Counter[int]  # by the number of crashes
    met: Counter[str]  # what lives did
    violations: tuple[Violation, ...]


def explore(seed: int, *, steps: int = STEPS, at: int | None = None, is_one_enough: bool = False) -> Outcome:
    """Play a seed; `at`: judge the crashes after this operation alone; `is_one_enough`: stop at the first violation."""
    return _Exploration(seed, at, is_one_enough=is_one_enough).play(steps)


class _EnoughError(BaseException):
    """Ends a seed early."""


class _Exploration:
    def __init__(self, seed: int, at: int | None, *, is_one_enough: bool) -> None:
        self._seed, self._at, self._is_one_enough = seed, at, is_one_enough
        random = Random(seed)
        self._setup = Setup.drawn(random)
        self._met = Counter[str]()
        self._machine = new_machine(self._setup, random, self._met)
        self._operation = 0
        self._states = Counter[str]()
        self._depths = Counter[int]()
        self._violations: list[Violation] = []

    def play(self, steps: int) -> Outcome:
        machine = self._machine
        machine.disk.on_operation = self._look
        try:
            machine.start()
            for _ in range(steps):
                machine.step()
        except Exception as error:  # noqa: BLE001  (whatever ends an opening or an operation is a finding)
            self._note((), error)
        except _EnoughError:
            pass
        return Outcome(
            seed=self._seed,
            setup=str(self._setup),
            states=self._states,
            depths=self._depths,
            met=self._met,
            violations=tuple(self._violations),
        )

    def _note(self, models: tuple[CrashModel, ...], error: Exception) -> None:
        names = tuple(model.name for model in models)
        problem = str(error) if isinstance(error, ViolationError) else _described(error)
        found = Violation(seed=self._seed, operation=self._operation, models=names, problem=problem)
        self._violations.append(found)
        if self._is_one_enough and models:
            raise _EnoughError

    def _look(self) -> None:
        """After an operation of the life: crash here, or do not."""
        self._operation += 1
        if self._at not in {None, self._operation}:
            return
        random = Random(f"{self._seed}/{self._operation}")
        if random.random() < EXPLORED:
            self._crash_here(random)

    def _crash_here(self, random: Random) -> None:
        model = drawn(random)
        self._crash(crashed(self._machine.disk.root, model, random), self._machine.promises, (model,), random)

    def _crash(
        self, tree: LossyDirectory, promises: tuple[Promise, ...], models: tuple[CrashModel, ...], random: Random
    ) -> None:
        """Judge what a crash left, and maybe crash again, in its opening or later."""
        is_followed = len(models) < CRASHES_MAX and random.random() < FOLLOWED
        spare = copied(tree) if is_followed else tree
        disk, operations = WatchedDisk(tree), _Count()
        disk.on_operation = operations
        self._states[models[-1].name] += 1
        self._depths[len(models)] += 1
        try:
            found = self._open(disk, promises)
            if not is_followed:
                return
            if random.random() < IN_OPENING:
                disk = WatchedDisk(spare)
                disk.cut_after(random.randint(1, operations.value + 1))
                promises = self._start_again(disk, promises)
            else:
                disk.cut_after(random.randint(1, OPERATIONS_BETWEEN))
                promises = self._go_on(disk, found, random)
        except Exception as error:  # noqa: BLE001  (whatever ends an opening or an operation is a finding)
            self._note(models, error)
            return
        model = drawn(random)
        self._crash(crashed(disk.root, model, random), promises, (*models, model), random)

    def _open(self, disk: WatchedDisk, promises: tuple[Promise, ...]) -> list[Found]:
        return verify(Node(disk, self._setup), promises, self._setup.limits)

    def _start_again(self, disk: WatchedDisk, promises: tuple[Promise, ...]) -> tuple[Promise, ...]:
        """Open until the disk is cut off; returns what is promised then: more, when the opening was done before."""
        try:
            return tuple(found.promise for found in self._open(disk, promises))
        except PowerCutError:
            return promises

    def _go_on(self, disk: WatchedDisk, found: list[Found], random: Random) -> tuple[Promise, ...]:
        """Have the groups that were found go on until the disk is cut off; returns what is promised then."""
        machine = Machine(disk, self._setup, random, Counter())
        try:
            machine.go_on(found)
            for _ in range(STEPS_BETWEEN):
                machine.step()
        except PowerCutError:
            pass
        return machine.promises


class _Count:
    """How often it was called."""

    def __init__(self) -> None:
        self.value = 0

    def __call__(self) -> None:
        self.value += 1


def _described(error: Exception) -> str:
    """An error of the product, with the place that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.name}, line {frame.lineno} of {frame.filename.rpartition('/')[2]})"
