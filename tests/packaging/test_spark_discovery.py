"""Spark finds the data source by the name of its package, and the package is light enough to be imported anywhere."""

import subprocess
import sys

from tests.harness.server import ROOT

HEAVY = ("pyarrow", "pandas", "trio", "numpy", "socket", "nats", "jetraft")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, pyspark_jetstream; print([name for name in {HEAVY!r} if name in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        cwd="/",
    )
    assert shown.stdout.strip() == "[]"


def test_spark_looks_up_the_source_by_its_package_name() -> None:
    """The three lines are those of pyspark/sql/worker/lookup_data_sources.py; tests/spark starts the real thing."""
    code = "from importlib import import_module; from pkgutil import iter_modules;"
    code += "names = [module.name for module in iter_modules() if module.name.startswith('pyspark_')];"
    code += "print({name: import_module(name).DefaultSource.name() for name in names})"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        cwd="/",
    )
    assert shown.stdout.strip() == "{'pyspark_jetstream': 'jetstream'}"
