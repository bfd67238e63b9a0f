"""The browser of these tests; each needs the marker `browser`, which `make ui-check` selects."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ui.browser import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One for all."""
    with chromium() as started:
        yield started
