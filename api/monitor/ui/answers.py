"""How the dashboard's own requests are answered: JSON with the headers of the dashboard."""

from collections.abc import Mapping
from typing import Any

import orjson

from jetraft.api.monitor.page import Page
from jetraft.api.monitor.ui.assets import with_headers


def answer(fields: Mapping[str, Any], *headers: tuple[str, str]) -> Page:
    """Fields of an answer."""
    return with_headers(Page(body=orjson.dumps(fields), headers=headers))


def problem(status: int, reason: str, *headers: tuple[str, str]) -> Page:
    """A refusal with its reason, in the form of the server's errors."""
    body = orjson.dumps({"error": {"code": status, "description": reason}})
    return with_headers(Page(body=body, status=status, headers=headers))
