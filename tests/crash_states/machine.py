"""A disk and the groups that live on it, started again after crashes; and a way to stop it between two operations."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tests.crash_states.crash_models import KILL, CrashModel, crashed, drawn
from tests.crash_states.lives import GroupLife
from tests.crash_states.product import Node, Setup, format_disk
from tests.crash_states.promises import Promise
from tests.crash_states.verification import Found, verify
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.lossy_tree import LossyDirectory

STEPS_OF_DISK_MAX: Final = 12
OF_DISK: Final = 0.09  # the share of steps in which the disk does a part of what it was given
RESTARTS: Final = 0.012  # the share of steps in which the machine itself crashes


class PowerCutError(BaseException):
    """Ends whatever runs. Nothing in the product catches it."""


class WatchedDisk(LossyDisk):
    """A disk that says when an operation is done."""

    def __init__(self, root: LossyDirectory | None = None) -> None:
        super().__init__()
        self.on_operation: Callable[[], None] | None = None
        if root is not None:
            self._root = root

    @property
    def root(self) -> LossyDirectory:
        """All of its tree."""
        return self._root

    def crash(self, random: Random, model: CrashModel = KILL) -> None:
        """Have what `model` leaves, and no process."""
        self.kill()
        self._root = crashed(self._root, model, random)

    def cut_after(self, count: int) -> None:
        """Raise PowerCutError after so many operations more."""
        left = count

        def count_down() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise PowerCutError

        self.on_operation = count_down

    def _operate(self, name: str, arguments: tuple[object, ...]) -> None:
        super()._operate(name, arguments)
        if self.on_operation is not None:
            self.on_operation()

    def _do_write(self, fd: int, data: bytes | Callable[[], bytes], offset: int) -> None:
        """In two halves: a process can be killed between them."""
        data = data() if callable(data) else data
        half = len(data) // 2
        super()._do_write(fd, data[:half], offset)
        if self.on_operation is not None:
            self.on_operation()
        super()._do_write(fd, data[half:], offset + half)


class Machine:
    """The groups of one disk. Its `random` alone decides what happens to it."""

    def __init__(self, disk: WatchedDisk, setup: Setup, random: Random, met: Counter[str]) -> None:
        self.disk = disk
        self._setup = setup
        self._random = random
        self._met = met
        self._groups: list[GroupLife] = []
        self._frozen: tuple[Promise, ...] = (Promise(),) * setup.groups

    @property
    def promises(self) -> tuple[Promise, ...]:
        """What a crash must leave now, of each group."""
        return tuple(group.promise for group in self._groups) or self._frozen

    def start(self) -> None:
        """Open what is on the disk, and check it. Raises ViolationError, and what an opening raises."""
        self.go_on(verify(Node(self.disk, self._setup), self._frozen, self._setup.limits))

    def go_on(self, found: Sequence[Found]) -> None:
        """Live on with groups that were opened and checked."""
        self._frozen = tuple(one.promise for one in found)
        groups = [
            GroupLife(number, self.disk, self._setup, one, self._random, self._met) for number, one in enumerate(found)
        ]
        self._groups = groups

    def step(self) -> None:
        """Do one thing."""
        luck = self._random.random()
        if luck < RESTARTS:
            self._restart()
        elif luck < RESTARTS + OF_DISK:
            for _ in range(self._random.randint(1, STEPS_OF_DISK_MAX)):
                self.disk.step()
        else:
            self._random.choice(self._groups).act()

    def _restart(self) -> None:
        self._frozen, self._groups = self.promises, []
        self.disk.crash(self._random, drawn(self._random))
        self._met["restarts"] += 1
        self.start()


def new_machine(setup: Setup, random: Random, met: Counter[str]) -> Machine:
    """One that was never started."""
    disk = WatchedDisk()
    format_disk(disk)
    return Machine(disk, setup, random, met)
