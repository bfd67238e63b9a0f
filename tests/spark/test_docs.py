"""docs/spark.md: its examples are programs whose options are accepted, and its tables have every option."""

import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream.options import KNOWN, Options, parse_options
from tests.harness.server import ROOT
from tests.spark.test_credentials import SEEDS, creds, text_of

TEXT = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


class Recorder:
    """Instead of a Spark session: keeps the options of a read, and parses them at `load`."""

    def __init__(self) -> None:
        self.found: list[Options] = []
        self._given: dict[str, str] = {}

    def __getattr__(self, _: str) -> "Recorder":
        return self

    def __call__(self, *_: Any, **__: Any) -> "Recorder":
        return self

    def option(self, name: str, value: object) -> "Recorder":
        self._given[name] = str(value)
        return self

    def load(self) -> "Recorder":
        self.found.append(parse_options(self._given))
        self._given = {}
        return self


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_options_of_each_example_are_accepted(code: str, tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(creds(text_of(SEEDS[0])))
    spark = Recorder()
    exec(compile(code, "docs/spark.md", "exec"), {"spark": spark, "creds": str(path)})
    assert spark.found


def test_every_option_has_its_row() -> None:
    rows = re.findall(r"^\| ([A-Za-z, ]+) \|", TEXT, re.MULTILINE)
    documented = {name.strip() for row in rows for name in row.split(",")}
    assert set(KNOWN.values()) - documented == set()
