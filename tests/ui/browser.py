"""A headless Chromium with the dashboard of a server, that notes whatever a page complains of.

Playwright drives it (the extra `ui-check`), and Debian's `chromium` or the one that JETRAFT_CHROMIUM names is the
browser. Both are asked for here, where a test needs them: `make test` collects these files without either.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from tests.harness.patience import PATIENCE_S, until
from tests.harness.ports import HOST
from tests.harness.server import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.server import Server

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
PICTURES: Final = ROOT / "docs" / "pictures"
WIDE: Final = (1360, 860)
PHONE: Final = (390, 800)


def program() -> str:
    """The browser; raises FileNotFoundError with what to do."""
    found = os.environ.get("JETRAFT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise FileNotFoundError("Chromium is missing: apt-get install chromium, or name it in JETRAFT_CHROMIUM")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, for one file of tests."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  see the module

    with sync_playwright() as playwright:
        # No sandbox: root has none in a container, and the only pages are those of the server under test.
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """One page of a server's dashboard."""

    def __init__(
        self, browser: Any, server: Server, *, size: tuple[int, int] = WIDE, scheme: str = "light", path: str = "/ui"
    ) -> None:
        width, height = size
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.said: list[str] = []  # what the browser complains of: errors, refused scripts, alerts
        self.page.on("console", lambda message: self._note(message) if message.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self._note_alert)
        self.url = f"http://{HOST}:{server.http_port}{path}"

    def _note(self, message: Any) -> None:
        if "Failed to load resource" not in message.text:  # a refusal of the server, which a test asks for
            self.said.append(message.text)

    def _note_alert(self, dialog: Any) -> None:
        self.said.append(f"alert: {dialog.message}")
        dialog.dismiss()

    def go(self, view: str) -> Self:
        """Show a view, and wait for what the server says of itself."""
        self.page.goto(f"{self.url}#/{view}")
        self.wait("document.querySelector('#health').textContent !== 'connecting'")
        return self

    def see(self, text: str, selector: str = "#main") -> None:
        """Return when this text is there."""
        self.page.locator(selector).get_by_text(text, exact=False).first.wait_for()

    def run(self, script: str) -> Any:
        """The value of a script."""
        return self.page.evaluate(script)

    def wait(self, condition: str) -> None:
        """Return when a condition of JavaScript holds: asked from outside, as the policy refuses to evaluate text."""
        until(lambda: self.run(condition) is True)

    def picture(self, name: str) -> Path:
        """Write what is seen to docs/pictures."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        self.page.screenshot(path=str(path))
        return path

    def sign_in(self, user: str, password: str) -> None:
        """Fill in the dialog and send it."""
        self.page.get_by_role("button", name="Sign in").first.click()
        box = self.page.get_by_role("dialog")
        box.get_by_label("User").fill(user)
        box.get_by_label("Password").fill(password)
        box.get_by_role("button", name="Sign in").click()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.page.screenshot(path="/tmp/dashboard-failed.png")
        self.context.close()
        assert kind is not None or self.said == [], "the browser complains"
