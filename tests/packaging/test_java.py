"""The demo's choice of a Java: the machine's own first, the packaged one behind its wrapper, one line otherwise."""

import subprocess
from pathlib import Path

import pytest

from demo import java


def fake_java(directory: Path, version: str) -> Path:
    """A program that answers -version like a Java and otherwise shows its arguments."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = "-version" ] && echo \'openjdk version "{version}"\' >&2 && exit\nprintf "%s\\n" "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_a_new_enough_java_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.java_home(tmp_path / "scratch") is None


def test_an_old_java_and_no_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "packaged_runtime", lambda: None)
    with pytest.raises(java.NoJavaError) as caught:
        java.java_home(tmp_path / "scratch")
    assert "\n" not in str(caught.value)


def test_the_packaged_java_gets_every_word_but_the_one_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(tmp_path / "packaged", "25.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(java, "packaged_runtime", lambda: packaged)
    home = java.java_home(tmp_path / "scratch")
    assert home is not None
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y", "main"]
    shown = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["-cp", "a b", "-Dx=$y", "main"]
