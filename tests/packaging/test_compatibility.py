"""The page of what is as in nats-server is made from the code and the scenes, and each part of the API is tried."""

import importlib.util
from typing import TYPE_CHECKING

import pytest

from tests.harness.server import ROOT

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = ROOT / "tools" / "gen_compatibility.py"


@pytest.fixture(scope="module")
def page() -> str:
    spec = importlib.util.spec_from_file_location("gen_compatibility", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: str = module.page()
    return made


def test_the_page_is_up_to_date(page: str) -> None:
    assert page == (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8"), "run `make docs`"


def test_each_subject_and_each_field_is_tried(page: str) -> None:
    assert [line for line in page.splitlines() if "NOT TRIED" in line] == []
