"""File systems of a few hundred kilobytes or megabytes, which tests can fill. Mounting them needs root."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disks(places: Sequence[Path], kib: int) -> Iterator[None]:
    """Make each of `places` a file system of its own, `kib` KiB large, until the end of the block.

    Skips the test for a user who may not mount; for root a mount that fails is an error.
    """
    if os.geteuid():
        pytest.skip("NOT TESTED: a full disk; mounting a small one needs root")
    mounted: list[Path] = []
    try:
        for place in places:
            place.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "jetraft-test", str(place)]
            subprocess.run(mount, check=True, capture_output=True)
            mounted.append(place)
        yield
    finally:
        for place in mounted:
            subprocess.run(["umount", str(place)], check=True)
