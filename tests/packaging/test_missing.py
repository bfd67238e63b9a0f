"""What a machine lacks to build is said in one line that can be pasted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.server import ROOT


def said(python: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["sh", str(ROOT / "tools" / "missing.sh"), python],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_nothing_is_said_where_all_is_there() -> None:
    assert said(sys.executable) == (0, "", "")


@pytest.mark.parametrize("compiler", ["no-such-compiler", "no-such-compiler -m64"])
def test_everything_is_named_at_once(compiler: str) -> None:
    packages = "python3 python3-venv python3-dev gcc libc6-dev libssl-dev"
    text = f"jetraft: this machine lacks {packages}; Debian: apt-get install -y {packages}\n"
    assert said("no-such-python", CC=compiler) == (1, "", text)


def test_a_header_that_a_compiler_does_not_find_is_named_by_its_package(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nread line\ncase "$line" in *openssl*) exit 1 ;; esac\n')
    compiler.chmod(0o755)
    text = "jetraft: this machine lacks libssl-dev; Debian: apt-get install -y libssl-dev\n"
    assert said(sys.executable, CC=str(compiler)) == (1, "", text)


def test_a_python_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$2" in *version_info*) exit 1 ;; *) echo 3.9.2 ;; esac\n')
    python.chmod(0o755)
    assert said(str(python)) == (1, "", f"jetraft: Python 3.11 or later is needed, {python} is 3.9.2\n")
