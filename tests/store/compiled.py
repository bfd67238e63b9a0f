"""Rules that compiled code keeps, each switched off: the module is built once more with an edit, and a test run on it.

The edited module is built into a directory of its own, and only the process that runs the test imports it, in place of
the one that everything else uses. What an edit lets grow is bounded, so that the test fails before the memory does.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

import attrs
import pytest

SRC: Final = Path(__file__).parents[2] / "src"
BUILD_S: Final = 300.0  # bounds a hang: it takes five seconds
TEST_S: Final = 300.0
BYTES_MAX: Final = 4 << 30  # of address space, of the process that runs the test


@attrs.frozen
class CompiledMutation:
    """A rule broken: `module` has `new` in place of its only `old`, and `test` fails."""

    rule: str
    instead: str
    module: str
    old: str
    new: str
    test: str


_SPARSE: Final = "tests/store/stream/test_sparse_index.py"
_SHELVES: Final = "jetraft.store.stream._shelves"

COMPILED: Final = (
    CompiledMutation(
        "S8",
        "a damaged skip is passed over, as a mark is",
        "jetraft.store.frames._frame",
        "if indexes is not None or shift or at == BLOCK_HEAD_BYTES:",
        "if size == 0:",
        "tests/store/blocks/test_damage_scan.py::test_a_flipped_bit_in_a_skip_costs_no_entry",
    ),
    CompiledMutation(
        "S15",
        "sequences between two messages take memory, up to sixteen million of them",
        _SHELVES,
        "if gap > BRIDGE_MAX or (self.empty + gap) * 2 > self.count - self.start:",
        "if gap > 1 << 16:",
        f"{_SPARSE}::test_messages_far_apart_cost_what_they_are_and_not_their_distance",
    ),
    CompiledMutation(
        "S15",
        "what was taken for messages that are gone stays",
        _SHELVES,
        "if self.empty * 2 > self.count - self.start + SLACK:",
        "if self.empty > 1 << 30:",
        f"{_SPARSE}::test_shelves_of_chunks_that_are_gone_do_not_stay",
    ),
)


def built(mutation: CompiledMutation, directory: Path) -> Path:
    """Build the edited module in an empty directory; returns its file. One whose `new` is `old` has no edit."""
    for kind in ("*.pxd", "*.h", "__init__.py"):
        for path in (SRC / "jetraft").glob(f"*/**/{kind}"):
            _copy(path, directory)
    for path in (SRC / "jetraft").glob("__init__.p*"):
        _copy(path, directory)
    source = SRC.joinpath(*mutation.module.split(".")).with_suffix(".pyx")
    text = source.read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1, f"{source.name} has changed: {mutation.old}"
    _copy(source, directory).write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    shutil.copy(SRC.parent / "setup.py", directory)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "built"]
    # Nothing of the environment chooses what is built, or leaves it beside the one that is in use.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JETRAFT_")}
    done = subprocess.run(
        command, cwd=directory, env=kept, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, done.stderr
    (found,) = directory.glob(f"built/{mutation.module.replace('.', '/')}.*.so")
    return found


def _copy(path: Path, directory: Path) -> Path:
    target = directory / "src" / path.relative_to(SRC)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    return target


def outcome(mutation: CompiledMutation, file: Path) -> tuple[int, str]:
    """Run the test on the built module in a process of its own: pytest's exit code, and what it has printed."""
    command = [sys.executable, "-m", "tests.store.compiled", mutation.module, str(file), mutation.test]
    done = subprocess.run(command, cwd=SRC.parent, capture_output=True, text=True, timeout=TEST_S, check=False)
    return done.returncode, done.stdout + done.stderr


@attrs.frozen
class _InPlaceOf:
    """Finds one module in a file that is not beside the others."""

    module: str
    file: str

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: object = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        return importlib.util.spec_from_file_location(name, self.file) if name == self.module else None


def main() -> int:
    """`python -m tests.store.compiled MODULE FILE TEST`."""
    import resource  # noqa: PLC0415  (of this process alone)

    module, file, test = sys.argv[1:]
    assert module not in sys.modules
    resource.setrlimit(resource.RLIMIT_AS, (BYTES_MAX, BYTES_MAX))
    sys.meta_path.insert(0, _InPlaceOf(module, file))
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--override-ini=addopts=", test])
    assert sys.modules[module].__file__ == file
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
