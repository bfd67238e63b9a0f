"""Builds an attrs class from what an earlier start found out about it.

attrs looks at each field of a class several times, writes text, and copies the names of the module: 0.3 ms a class,
which is two fifths of a start. All of that follows from a class's **shape**: the arguments of the decorator, the names
of the fields and of what kind their defaults are, and which methods the class has. Where the shape is the one of the
start that saved the code, the class is put together here, as attrs does it: the same methods, slots and hooks.
`__attrs_attrs__` is worked out by attrs when it is first read, as few classes are ever asked for their fields.

Only plain classes have a shape: slots, no converters, own comparison, `__init_subclass__` hooks or fields of a base,
and validators only where nothing is set later. attrs builds all others, and every class under an attrs or a Python that
this module was not compared with (`tests/api/startup/test_class_plans.py` compares each class of the server).
"""

# ruff: noqa: SLF001  attrs has no public names for what it builds classes of
import sys
import weakref
from collections.abc import Mapping
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, ClassVar, Final, NamedTuple

import attr
from attr import _make

make: Any = _make  # its inner functions have no types
KNOWN_ATTRS: Final = "26.1.0"
KNOWN_PYTHON: Final = (3, 14)  # the first that is not known: annotations are made late there
WRITTEN: Final = ("__repr__", "__eq__", "__ne__", "__hash__", "__match_args__")
REFUSED: Final = frozenset(("__init__", "__setattr__", "__slots__", "__getstate__", "__setstate__", "__replace__"))
# What the arguments of the decorator have to be; the others are part of the shape.
PLAIN: Final = {
    "these": None, "repr": None, "hash": None, "unsafe_hash": None, "init": None, "slots": True, "weakref_slot": True,
    "str": False, "auto_attribs": True, "cache_hash": False, "auto_exc": True, "order": False, "auto_detect": True,
    "collect_by_mro": True, "getstate_setstate": None, "field_transformer": None, "match_args": True,
    "force_kw_only": False,
}  # fmt: skip
PLAIN_VALUES: Final = tuple(PLAIN.values())
PICKED: Final = itemgetter(*PLAIN)
HOOKS: Final = (None, make._DEFAULT_ON_SETATTR)  # without validators they do nothing

SET: Final = object.__setattr__.__get__
COUNTED: Final = make._CountingAttr  # what `attrs.field` returns
PROPS: Final[dict[Any, Any]] = {}

Fields = list[tuple[str, Any, Any]]  # name, what the class has under it, annotation


class Shape(NamedTuple):
    """The facts that the methods of a class follow from."""

    is_frozen: bool
    is_kw_only: bool
    is_compared: bool
    own: tuple[str, ...]  # methods that are not to be written
    text: str  # all of it, with the name of the class


def is_known() -> bool:
    """Whether classes can be built here."""
    # `attr.__version__` would load importlib.metadata, which takes 10 ms.
    installed = Path(make.__file__).parent.parent / f"attrs-{KNOWN_ATTRS}.dist-info"
    return sys.version_info < KNOWN_PYTHON and installed.exists()


class Default:
    """The object that the text of `__init__` reads a default from, in the place of attrs' description of the field."""

    __slots__ = ("default",)

    def __init__(self, default: Any) -> None:
        self.default = default


def fields_of(cls: type) -> Fields | None:
    """The fields in their order, or None when one is not plain."""
    own = cls.__dict__
    found: Fields = []
    counted = 0
    for name, annotation in own.get("__annotations__", {}).items():
        if annotation.__class__ is str:
            if make._is_class_var(annotation):
                continue
        elif annotation is ClassVar or getattr(annotation, "__origin__", None) is ClassVar:
            continue
        value = own.get(name, attr.NOTHING)
        if value.__class__ is COUNTED:
            if not is_plain(value):
                return None
            counted += 1
        found.append((name, value, annotation))
    all_counted = [value.__class__ for value in own.values()].count(COUNTED)
    return found if all_counted == counted else None  # attrs refuses fields without an annotation, or orders others


def is_plain(field: Any) -> bool:
    """Whether attrs writes nothing for this field that it does not write for every one."""
    return (
        field.converter is None
        and field.alias is None
        and field.on_setattr is None
        and field.type is None
        and field.hash is None
        and field.eq is True
        and field.eq_key is None
        and (field.repr is True or field.repr is False)
    )


def is_validated(value: Any) -> bool:
    """Whether `__init__` calls a validator for this field."""
    return value.__class__ is COUNTED and value._validator is not None


def kind_of(value: Any) -> str:
    """The facts that the text depends on: whether there is a default or a factory, and what the field leaves out."""
    if value.__class__ is not COUNTED:
        if value is attr.NOTHING:
            return ""
        return "d" if value.__class__ is not attr.Factory else "s" if value.takes_self else "f"
    kind = kind_of(value._default)
    kind += "" if value.init else "i"
    kind += "" if value.repr else "r"
    kind += "" if value._validator is None else "v"
    return kind if value.kw_only is None else kind + ("k" if value.kw_only else "p")


def shape_of(cls: type, arguments: Mapping[str, Any], fields: Fields) -> Shape | None:
    """All that the methods of this class follow from, or None when attrs has to build it."""
    own = cls.__dict__
    if (
        PICKED(arguments) != PLAIN_VALUES
        or arguments["on_setattr"] not in HOOKS
        or arguments["eq"] not in (None, True, False)
        or not REFUSED.isdisjoint(own)
        or issubclass(cls, BaseException)
        or hasattr(cls, "__attrs_pre_init__")
        or hasattr(cls, "__attrs_init_subclass__")
        or ("__init__" in type(cls).__dict__ and type(cls) is not type)
        or cached_property in [value.__class__ for value in own.values()]
    ):
        return None
    for base in cls.__mro__[1:-1]:
        if "__attrs_attrs__" in base.__dict__ or base.__dict__.get("__slots__"):
            return None
    frozen, kw_only, eq = arguments["frozen"], arguments["kw_only"], arguments["eq"]
    if not frozen and any(is_validated(value) for _, value, _ in fields):
        return None  # attrs writes a `__setattr__` for it
    own_methods = tuple([name for name in WRITTEN if name in own])
    kinds = ",".join([f"{name}={kind_of(value)}" for name, value, _ in fields])
    settles = hasattr(cls, "__attrs_post_init__")
    text = f"{KNOWN_ATTRS} {cls.__module__} {cls.__qualname__} {frozen} {kw_only} {eq} {settles} {own_methods} {kinds}"
    return Shape(frozen, kw_only, eq is not False, own_methods, text)


def build(cls: type, shape: Shape, fields: Fields, code: CodeType) -> type:
    """The class with its methods, which `code` makes; what attrs returns for a class of this shape."""
    frozen, own = shape.is_frozen, shape.own
    methods = methods_of(cls, shape, fields, code)
    names = [name for name, _, _ in fields]
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    for name in names:
        body.pop(name, None)
    compares = shape.is_compared and "__eq__" not in own and "__ne__" not in own
    writes_hash = compares and frozen and "__hash__" not in own
    late = LateFields(cls, fields, props_of(shape, compares=compares, writes_hash=writes_hash))
    body |= {"__attrs_attrs__": late, "__attrs_props__": late.props, **methods, **pickling(tuple(names))}
    if compares:
        body["__ne__"] = make.__ne__
        if not frozen and "__hash__" not in own:
            body["__hash__"] = None
    if frozen:
        body["__setattr__"] = make._frozen_setattrs
        body["__delattr__"] = make._frozen_delattrs
    else:
        body["__attrs_own_setattr__"] = False
    if "__match_args__" not in own:
        body["__match_args__"] = tuple(
            name for name, value, _ in fields if is_positional(value, kw_only=shape.is_kw_only)
        )
    if sys.version_info >= (3, 13):
        body["__replace__"] = dundered(attr.evolve, cls)
    has_weakref = any(base.__dict__.get("__weakref__") is not None for base in cls.__mro__[1:-1])
    body["__slots__"] = tuple(names) if has_weakref else (*names, "__weakref__")
    body["__qualname__"] = cls.__qualname__
    made = type(cls)(cls.__name__, cls.__bases__, body)
    late.owner = made
    correct_cells(cls, made)
    cls.__attrs_base_of_slotted__ = weakref.ref(made)  # type: ignore[attr-defined]
    return made


def methods_of(cls: type, shape: Shape, fields: Fields, code: CodeType) -> dict[str, Any]:
    """The functions that attrs' text defines, with the defaults and factories of this class."""
    names: dict[str, Any] = {"NOTHING": attr.NOTHING, "AttributeError": AttributeError, "_compat": make._compat}
    if shape.is_frozen:
        names["_cached_setattr_get"] = SET
    names["attr_dict"] = defaults = {}
    annotations: dict[str, Any] = {"return": None}
    for name, value, annotation in fields:
        is_field = value.__class__ is COUNTED
        default = value._default if is_field else value
        if default.__class__ is attr.Factory:
            names[f"__attr_factory_{name}"] = default.factory
        elif default is not attr.NOTHING:
            defaults[name] = Default(default)
        if is_field and value._validator is not None:
            names["_config"] = make._config
            names[f"__attr_validator_{name}"] = value._validator
            names[f"__attr_{name}"] = described(name, value, annotation, kw_only=shape.is_kw_only)
        if not is_field or value.init:
            annotations[name.lstrip("_")] = annotation
    made: dict[str, Any] = {}
    eval(code, names, made)  # noqa: S307  attrs' own text
    for method in made.values():
        dundered(method, cls)
    made["__init__"].__annotations__ = annotations
    return made


def described(name: str, value: Any, annotation: Any, *, kw_only: bool) -> Any:
    """The description of a field that attrs gives to a validator."""
    found = make.Attribute.from_counting_attr(name, value, kw_only, annotation)
    assert found.alias is None, "no plain field has one"
    set_ = SET(found)
    set_("alias", name.lstrip("_"))
    set_("alias_is_default", True)  # noqa: FBT003  attrs' own words
    return found


def dundered(method: Any, cls: type) -> Any:
    """The method, named as one of this class."""
    method.__module__ = cls.__module__
    method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
    method.__doc__ = f"Method generated by attrs for class {cls.__qualname__}."
    return method


def pickling(names: tuple[str, ...]) -> dict[str, Any]:
    """How the fields are put into a state and taken out, as attrs does it."""
    builder: Any = SimpleNamespace(_attr_names=names, _cache_hash=False)
    get, put = make._ClassBuilder._make_getstate_setstate(builder)
    return {"__getstate__": get, "__setstate__": put}


def is_positional(value: Any, *, kw_only: bool) -> bool:
    """Whether `__init__` takes this field by its place."""
    if value.__class__ is not COUNTED:
        return not kw_only
    return value.init and not (kw_only if value.kw_only is None else value.kw_only)


def correct_cells(old: type, new: type) -> None:
    """Let `super()` and `__class__` in methods mean the class with slots."""
    for value in old.__dict__.values():  # what was written has no cells of the class
        function: Any = value
        if isinstance(value, classmethod | staticmethod):
            function = value.__func__
        elif isinstance(value, property):
            function = value.fget
        for cell in getattr(function, "__closure__", None) or ():
            try:
                if cell.cell_contents is old:
                    cell.cell_contents = new
            except ValueError:  # an empty cell
                continue


def props_of(shape: Shape, *, compares: bool, writes_hash: bool) -> Any:
    """The arguments of the decorator; the same object for classes that are alike."""
    frozen, kw_only, own = shape.is_frozen, shape.is_kw_only, shape.own
    key = (frozen, kw_only, compares, writes_hash, own)
    found = PROPS.get(key)
    if found is None:
        kinds = make.ClassProps.Hashability
        left = "__hash__" in own or not compares
        found = PROPS[key] = make.ClassProps(
            is_exception=False,
            is_slotted=True,
            has_weakref_slot=True,
            is_frozen=frozen,
            kw_only=make.ClassProps.KeywordOnly.YES if kw_only else make.ClassProps.KeywordOnly.NO,
            collected_fields_by_mro=True,
            added_init=True,
            added_repr="__repr__" not in own,
            added_eq=compares,
            added_ordering=False,
            hashability=kinds.HASHABLE if writes_hash else kinds.LEAVE_ALONE if left else kinds.UNHASHABLE,
            added_match_args=True,
            added_str=False,
            added_pickling=True,
            on_setattr_hook=None if frozen else make._DEFAULT_ON_SETATTR,
            field_transformer=None,
        )
    return found


class LateFields:
    """`__attrs_attrs__` until it is read: then attrs works it out from what the class was written with."""

    def __init__(self, cls: type, fields: Fields, props: Any) -> None:
        self.name = cls.__name__
        self.fields = fields
        self.props = props
        self.owner: Any = None

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        written = {name: value for name, value, _ in self.fields if value is not attr.NOTHING}
        annotations = {name: annotation for name, _, annotation in self.fields}
        like = type(self.name, (), {**written, "__annotations__": annotations})
        found = make._transform_attrs(like, None, True, self.props.kw_only, True, None).attrs  # noqa: FBT003
        self.owner.__attrs_attrs__ = found
        return found
