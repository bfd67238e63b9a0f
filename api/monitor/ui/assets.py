"""The files of the dashboard, and the headers that every answer below `/ui` has.

The policy lets a browser load scripts, styles and data from this server only, run nothing that stands inside a page,
and make no markup out of text (`require-trusted-types-for`): a stream whose name is markup is shown as its name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from jetraft.api.monitor.page import Handler, Page

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
FILES: Final[Mapping[str, tuple[str, str]]] = {  # path below the base path -> file, type
    "/ui": ("index.html", "text/html; charset=utf-8"),
    "/ui/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/ui/app.css": ("app.css", "text/css; charset=utf-8"),
    "/ui/icon.svg": ("icon.svg", "image/svg+xml"),
}


def asset_table() -> dict[str, Handler]:
    """Path -> handler of each file. The files are read now, some 100 KB, so that no request reads one."""
    folder = Path(__file__).parent / "static"  # `importlib.resources` would load zipfile and all that it needs
    table: dict[str, Handler] = {}
    for path, (name, content_type) in FILES.items():
        table[path] = _always(with_headers(Page(body=(folder / name).read_bytes(), content_type=content_type)))
    return table


def with_headers(page: Page) -> Page:
    """The page with the headers of the dashboard in front of its own."""
    return attrs.evolve(page, headers=(*HEADERS, *page.headers))


def _always(page: Page) -> Handler:
    return lambda _arguments: page
