"""Classes that are put together from kept code are the classes that attrs makes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attr._make
import attr._next_gen
import attrs
import pytest

from jetraft.api.startup.class_code import ClassCode
from jetraft.api.startup.class_plans import LateFields, is_known
from tests.harness.patience import PATIENCE_S
from tests.harness.server import environment

pytestmark = pytest.mark.skipif(not is_known(), reason="attrs builds every class here")

# Every class of every module, described: what is compared is all that code can see of it.
SCRIPT = r"""
import importlib, inspect, json, pkgutil, re, sys
import jetraft, jetraft.api.startup.class_code as code_module
from jetraft.api.startup.class_plans import LateFields
if sys.argv[1] == "attrs":
    code_module.is_known = lambda: False
known = code_module.ClassCode.install()
names = [m.name for m in pkgutil.walk_packages(jetraft.__path__, "jetraft.", onerror=print)]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
known.save()
late = 0

def plain(text):
    return re.sub(r" at 0x[0-9a-f]+|-?\b\d{12,}\b", "", text)

def code_of(code):
    names = str((code.co_names, code.co_varnames, code.co_filename))
    return [code.co_code.hex(), names, plain(str(code.co_consts))]

def method(value):
    value = getattr(value, "__func__", value)
    if not hasattr(value, "__code__"):
        return plain(repr(value))
    cells = [plain(repr(cell.cell_contents)) for cell in value.__closure__ or ()]
    about = [value.__qualname__, value.__module__, value.__doc__, plain(repr(value.__annotations__)), cells]
    defaults = plain(repr(value.__defaults__)), plain(repr(value.__kwdefaults__))
    return [about, code_of(value.__code__), plain(str(inspect.signature(value))), defaults]

def described(cls):
    global late
    late += isinstance(cls.__dict__["__attrs_attrs__"], LateFields)
    fields = [[plain(repr(getattr(f, s))) for s in f.__slots__] for f in cls.__attrs_attrs__]
    names = [getattr(cls.__attrs_attrs__, f.name) is f for f in cls.__attrs_attrs__]
    assert cls.__attrs_attrs__ is cls.__attrs_attrs__
    assert type(cls.__attrs_attrs__).__name__ == cls.__name__ + "Attributes"
    props = [plain(repr(getattr(cls.__attrs_props__, s))) for s in cls.__attrs_props__.__slots__]
    others = ("__attrs_attrs__", "__attrs_props__", "_abc_impl")
    own = {k: method(v) for k, v in sorted(cls.__dict__.items()) if k not in others}
    return [fields, all(names), props, own, plain(repr(cls.__mro__)), cls.__weakrefoffset__ > 0, cls.__basicsize__]

found = {}
for name in names:
    for value in vars(sys.modules.get(name, object)).values() if name in sys.modules else ():
        if isinstance(value, type) and "__attrs_attrs__" in value.__dict__ and value.__module__ == name:
            found[f"{name}.{value.__qualname__}"] = described(value)
print(json.dumps([found, late]))
"""


def classes(path: Path, who: str) -> Any:
    """The classes of all modules, how many were put together from kept code, as `who` makes them."""
    env = os.environ | environment("jetraft") | {"PYTHONPYCACHEPREFIX": str(path), "PYTHONHASHSEED": "0"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [sys.executable, "-c", SCRIPT, who]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow("imports the whole server three times, first without byte code")
def test_every_class_is_what_attrs_makes(tmp_path: Path) -> None:
    by_attrs, late = classes(tmp_path, "attrs")
    assert late == 0
    classes(tmp_path, "kept")  # finds out
    kept, late = classes(tmp_path, "kept")
    assert late > 0.8 * len(kept), "most classes are plain"
    assert kept.keys() == by_attrs.keys()
    for name, described in by_attrs.items():
        assert kept[name] == described, name


def twice(path: Path, monkeypatch: pytest.MonkeyPatch, define: Any) -> tuple[Any, Any]:
    """What attrs makes of a class, and what is made from the code that was kept of it."""
    module: Any = attr._next_gen  # does not export what is replaced
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(attr._make, "_compile_and_eval", attr._make._compile_and_eval)
    monkeypatch.setattr(module, "attrs", module.attrs)
    first = ClassCode(path)
    attr._make._compile_and_eval, module.attrs = first.evaluate, first.build
    one = define()
    first.save()
    second = ClassCode(path)
    attr._make._compile_and_eval, module.attrs = second.evaluate, second.build
    return one, define()


def plain_class() -> Any:
    @attrs.frozen(kw_only=True)
    class Point:
        x: int
        names: list[str] = attrs.field(factory=list, repr=False)
        twice: int = attrs.field(default=attrs.Factory(lambda self: 2 * self.x, takes_self=True), init=False)
        _hidden: int = 3

        def kind(self) -> type:
            return __class__  # type: ignore[name-defined,no-any-return]

    return Point


def test_a_class_behaves_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = twice(tmp_path / "x.classes", monkeypatch, plain_class)
    assert not isinstance(one.__dict__["__attrs_attrs__"], LateFields)
    assert isinstance(other.__dict__["__attrs_attrs__"], LateFields)
    point = other(x=4, hidden=5)
    assert repr(point) == repr(one(x=4, hidden=5))
    assert attrs.evolve(point, x=5).twice == 10
    assert attrs.asdict(point) == attrs.asdict(one(x=4, hidden=5))
    assert point == other(x=4, hidden=5)
    assert hash(other(x=1, names=())) == hash(other(x=1, names=()))
    assert point.kind() is other
    assert attrs.fields(other).names == attrs.fields(one).names
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        point.x = 3
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'x'"):
        other()


def told_class() -> Any:
    def is_small(instance: Any, field: Any, value: int) -> None:
        if value > 9:
            raise ValueError(type(instance), field, value)

    @attrs.frozen
    class Told:
        _x: int = attrs.field(validator=is_small)
        y: bytes = attrs.field(default=b"", validator=attrs.validators.instance_of(bytes), kw_only=True)

    return Told


def test_a_validator_is_told_what_attrs_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = twice(tmp_path / "x.classes", monkeypatch, told_class)
    assert isinstance(other.__dict__["__attrs_attrs__"], LateFields)
    assert other(9, y=b"a").y == b"a"
    with pytest.raises(ValueError, match="10") as by_attrs:
        one(10)
    with pytest.raises(ValueError, match="10") as kept:
        other(10)
    assert kept.value.args[0] is other
    told, expected = kept.value.args[1], by_attrs.value.args[1]
    assert [getattr(told, slot) for slot in told.__slots__ if slot != "validator"] == [
        getattr(expected, slot) for slot in told.__slots__ if slot != "validator"
    ]
    assert told.validator is attrs.fields(other)[0].validator
    with pytest.raises(TypeError, match="'y' must be <class 'bytes'>"):
        other(1, y="a")
    with attrs.validators.disabled():
        assert other(10, y=1).y == 1


def test_another_shape_is_built_by_attrs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default: list[Any] = [attrs.field()]

    def define() -> Any:
        @attrs.define
        class Row:
            x: int = default[-1]

        default.append(7)
        return Row

    one, other = twice(tmp_path / "x.classes", monkeypatch, define)
    assert other().x == 7
    with pytest.raises(TypeError):
        one()
    assert not isinstance(other.__dict__["__attrs_attrs__"], LateFields)


def guarded() -> Any:
    @attrs.define
    class Guarded:
        x: int = attrs.field(validator=attrs.validators.instance_of(int))

    return Guarded


def derived() -> Any:
    @attrs.define
    class Base:
        x: int

    @attrs.define
    class Derived(Base):
        y: int

    return Derived


def described_by_others() -> Any:
    return attrs.define(type("Row", (), {"x": attrs.field()}))


@pytest.mark.parametrize("define", [guarded, derived, described_by_others])
def test_what_is_not_plain_is_left_to_attrs(define: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, other = twice(tmp_path / "x.classes", monkeypatch, define)
    assert not isinstance(other.__dict__["__attrs_attrs__"], LateFields)
    assert attrs.fields(other)[0].name == "x"
