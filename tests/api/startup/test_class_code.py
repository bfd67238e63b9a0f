"""The code of generated methods that is kept between starts."""

import sys
from pathlib import Path
from typing import Any

import attr._make
import attrs
import pytest

from jetraft.api.startup.class_code import ClassCode, digest
from jetraft.api.startup.kept_code import write


def defined() -> Any:
    @attrs.frozen
    class Point:
        x: int
        y: int = 3

    return Point


@pytest.fixture(autouse=True)
def _bytes_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says: what is kept is what these tests are about."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def installed(path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassCode:
    code = ClassCode(path)
    monkeypatch.setattr(attr._make, "_compile_and_eval", code.evaluate)
    return code


def test_a_class_is_the_same_from_kept_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.classes"
    first = installed(path, monkeypatch)
    one = defined()
    assert first.added
    first.save()
    second = installed(path, monkeypatch)
    other = defined()
    assert not second.added
    assert repr(one(1)) == repr(other(1))
    assert other(1) == other(1, 3)
    assert hash(other(1)) == hash(other(1, 3))
    assert other(1) != other(2)


def test_another_text_is_another_digest() -> None:
    assert digest("<a>", "x = 1") != digest("<a>", "x = 2")
    assert digest("<a>", "x") != digest("<b>", "x")


def test_the_salt_of_a_hash_is_no_part_of_the_digest() -> None:
    text = "def __hash__(self):\n    return hash((\n            {},\n        self.x,\n    ))"
    assert digest("<a>", text.format(5)) == digest("<a>", text.format(-77))


def test_what_is_known_stays_when_other_classes_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.classes"
    write(path, {b"k" * 16: b"code"})
    code = installed(path, monkeypatch)
    defined()
    code.save()
    assert ClassCode(path).known(b"k" * 16) == b"code"


def test_nothing_is_written_where_python_writes_nothing_and_what_is_there_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.classes"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = installed(path, monkeypatch)
    defined()
    first.save()
    assert not path.exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    first.save()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    second = installed(path, monkeypatch)
    defined()
    assert not second.added
