"""The short form of `make faults-spark`: an executor that was given up goes on, and nothing is written twice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_jetstream.java import JavaMissingError, ensure_java
from tests.harness.forms import IS_LONG

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.long_form
@pytest.mark.skipif(not IS_LONG, reason="three servers, and a driver and executors in processes of their own: a minute")
@pytest.mark.timeout(900)  # the Javas beside other tests on two cores
def test_an_executor_that_was_given_up_and_goes_on_writes_nothing_twice() -> None:
    try:
        ensure_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "tests.faults.spark", "--short"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = re.search(r": 40000 rows, .* (\d+) messages of zombies, clean", ended.stdout)
    assert found is not None, ended.stdout
    assert int(found[1]) > 0
