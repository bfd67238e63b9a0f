"""Keeps the byte code of modules in one file, so that a start does not look for 500 of them.

Python finds a module by the folder of its package, compares the time and the size of its source with what its `.pyc`
file states, and reads that: 30 to 50 us a module. Here what an earlier start found is looked up by name, and two
questions remain, which are Python's too: whether the folder, asked once, has the time of then, and whether the file has
that time and size. A module for which the answer is no is found and read by Python.

Only modules in packages, as those are looked for in one place: `sys.path` has no part in it; and only in those that
have many. The finder serves until the server is ready; then what it did not know is written for the next start
(`kept_code.py`).
"""

import marshal
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from jetraft.api.startup.kept_code import KeptCode, beside, read, write

PACKAGES: Final = ("jetraft.", "trio.", "attr.")
MODULES_MAX: Final = 4096  # of all kinds of server and command that start from here; together they have 1,000

FROM_FILES: Final = (SourceFileLoader, ExtensionFileLoader)

CACHED: Final = f".{sys.implementation.cache_tag}.pyc"

# The folder that was looked in, the ending of the file, its time and size, the folder of its `.pyc` file ("" if it is
# compiled), and whether it is a package. Names are put together from these, as many modules share a folder.
Facts = tuple[str, str, int, int, str, bool]


class KeptLoader(SourceFileLoader):
    """Loads a module from kept code; in all else a module of a file."""

    def __init__(self, name: str, path: str, code: bytes) -> None:
        super().__init__(name, path)
        self._code: bytes | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the module."""
        kept, self._code = self._code, None  # the second question is not a start's
        if kept is None:
            return super().get_code(fullname)
        code = marshal.loads(kept)  # noqa: S302  as Python does with `.pyc` files
        assert isinstance(code, CodeType)
        return code


class ModuleCode:
    """A finder of modules, the first of `sys.meta_path`."""

    def __init__(self, path: Path, kept: KeptCode) -> None:
        self.path = path
        self._kept = kept
        self._known: Mapping[str, Facts] = {}
        self._times: Mapping[str, int] = {}  # of folders
        if kept.facts is not None:
            self._known, self._times = kept.facts
        self._unchanged: dict[str, bool] = {}  # of folders: whether their time is that of then
        self.found: set[str] = set()

    @classmethod
    def install(cls) -> "ModuleCode":
        """Find modules from now on."""
        path = beside(__file__, ".modules")
        finder = cls(path, read(path))
        sys.meta_path.insert(0, finder)
        return finder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to load a module that is as it was; None: let Python look for it."""
        facts = self._known.get(name)
        if facts is None or path is None or path[0] != facts[0] or not self._is_as_it_was(name, facts):
            return None
        folder, _, _, _, cache, is_package = facts
        file = file_of(name, facts)
        loader: SourceFileLoader | ExtensionFileLoader
        if cache:
            code = self._kept.get(name)
            if code is None:
                return None
            loader = KeptLoader(name, file, code)
        else:
            loader = ExtensionFileLoader(name, file)
        spec = ModuleSpec(name, loader, origin=file, is_package=is_package)
        spec.has_location = True
        if cache:
            spec.cached = cached_of(name, facts)
        if is_package:
            spec.submodule_search_locations = [f"{folder}/{name.rpartition('.')[2]}"]
        self.found.add(name)
        return spec

    def _is_as_it_was(self, name: str, facts: Facts) -> bool:
        folder, _, time_ns, size, _, _ = facts
        unchanged = self._unchanged.get(folder)
        if unchanged is None:
            unchanged = self._unchanged[folder] = time_of(folder) == self._times.get(folder)
        if not unchanged:
            return False
        try:
            now = os.stat(file_of(name, facts))  # noqa: PTH116  500 times in a start
        except OSError:
            return False
        return now.st_mtime_ns == time_ns and now.st_size == size

    def save(self) -> None:
        """Find nothing any more; write what was not known."""
        if self not in sys.meta_path:  # the second time
            return
        sys.meta_path.remove(self)
        if not sys.dont_write_bytecode:
            new = {name: module for name, module in list(sys.modules.items()) if name not in self.found}
            self._write(new)
        self._kept.close()
        self._known, self._times = {}, {}

    def _write(self, new: Mapping[str, ModuleType]) -> None:
        loaded = {name: facts for name, module in new.items() if (facts := facts_of(name, module)) is not None}
        learnt = {name: facts for name, facts in loaded.items() if not self._is_kept(name, facts)}
        if not learnt:
            return
        known = {name: facts for name, facts in self._known.items() if self._is_as_it_was(name, facts)}
        if len(known) + len(learnt) > MODULES_MAX:
            known = {name: facts for name, facts in known.items() if name in self.found}
        codes = {name: code for name in known if (code := self._kept.get(name)) is not None}
        codes |= {name: code for name in learnt if (code := code_of(new[name])) is not None}
        known = {name: facts for name, facts in (known | learnt).items() if name in codes or not facts[4]}
        times = {folder: time_of(folder) for folder in {facts[0] for facts in known.values()}}
        write(self.path, codes, (known, times))

    def _is_kept(self, name: str, facts: Facts) -> bool:
        """Whether the file has all of a module, which was loaded before the finder was there."""
        is_known = self._known.get(name) == facts and self._is_as_it_was(name, facts)
        return is_known and (not facts[4] or self._kept.get(name) is not None)


def facts_of(name: str, module: ModuleType) -> Facts | None:
    """The record of a module that Python has found in the folder of its package; None of others."""
    spec = getattr(module, "__spec__", None)
    if (
        not name.startswith(PACKAGES)
        or spec is None
        or type(spec.loader) not in (SourceFileLoader, ExtensionFileLoader)
    ):
        return None
    within = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", None)
    if spec.name != name or not within:
        return None
    is_package = spec.submodule_search_locations is not None
    place = f"{within[0]}/{name.rpartition('.')[2]}"
    if is_package and list(spec.submodule_search_locations) != [place]:
        return None
    stem = f"{place}/__init__" if is_package else place
    ending = spec.origin.removeprefix(stem)
    cache = spec.cached.rpartition("/")[0] if type(spec.loader) is SourceFileLoader and spec.cached else ""
    try:
        now = os.stat(spec.origin)  # noqa: PTH116  as above
    except OSError:
        return None
    facts = within[0], sys.intern(ending), now.st_mtime_ns, now.st_size, sys.intern(cache), is_package
    is_named_so = file_of(name, facts) == spec.origin and (not cache or cached_of(name, facts) == spec.cached)
    return facts if is_named_so else None


def file_of(name: str, facts: Facts) -> str:
    """The file of a module."""
    stem = f"{facts[0]}/{name.rpartition('.')[2]}"
    return f"{stem}/__init__{facts[1]}" if facts[5] else stem + facts[1]


def cached_of(name: str, facts: Facts) -> str:
    """The `.pyc` file of a module, whether it is there or not."""
    return f"{facts[4]}/{'__init__' if facts[5] else name.rpartition('.')[2]}{CACHED}"


def code_of(module: ModuleType) -> bytes | None:
    """The byte code of a module, packed."""
    loader: Any = module.__spec__.loader if module.__spec__ is not None else None
    if type(loader) is not SourceFileLoader:
        return None
    try:
        return marshal.dumps(loader.get_code(loader.name))
    except (OSError, ImportError, SyntaxError):
        return None


def time_of(folder: str) -> int:
    """When a module last came to a folder or left it; 0 when it is not there."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116  as above
    except OSError:
        return 0
