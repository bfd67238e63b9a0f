"""Each view of the dashboard in a browser: what it shows, names that are markup, a narrow screen, the keyboard."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.ui.browser import PHONE, Window

pytestmark = pytest.mark.browser
MARKUP: Final = "<img src=x onerror=alert(1)>"
MARKUP_STREAM: Final = "<img\"onerror='alert(1)'"
STREAMS: Final = 150
CONSUMERS: Final = 120
VIEWS: Final = {
    "overview": "Messages in",
    "streams": "S000",
    "consumers": "C000",
    "connections": "orders service",
    "accounts": "$G",
    "raft": "_meta_",
    "events": "Nothing has happened",
    "stream/%24G/ORDERS": "orders.>",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with (
        Server("jetraft", directory=tmp_path_factory.mktemp("views")) as running,
        RawClient(running.address, name="orders service") as client,
        RawClient(running.address, name=MARKUP) as other,
    ):
        other.subscribe(MARKUP.replace(" ", "_"))
        for number in range(STREAMS):
            name = f"S{number:03}"
            client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"s{number}.>"]})
        client.api(f"STREAM.CREATE.{MARKUP_STREAM}", {"name": MARKUP_STREAM, "subjects": ["<b>x</b>"]})
        client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        ahead = {
            "durable_name": "ahead",
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": 99,
        }
        client.api("CONSUMER.CREATE.ORDERS.ahead", {"stream_name": "ORDERS", "config": ahead})
        for number in range(CONSUMERS):
            config = {"durable_name": f"C{number:03}", "ack_policy": "explicit"}
            client.api(f"CONSUMER.CREATE.ORDERS.C{number:03}", {"stream_name": "ORDERS", "config": config})
        for _ in range(20):
            client.request("orders.new", b"x")
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_there_is(browser: Any, server: Server, view: str, scheme: str) -> None:
    with Window(browser, server, scheme=scheme) as window:
        window.go(view).see(VIEWS[view])
        window.see("healthy", "header")
        assert window.run("document.title") == "n1 · jetraft"


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_a_phone(browser: Any, server: Server, view: str) -> None:
    with Window(browser, server, size=PHONE) as window:
        window.go(view).see(VIEWS[view])
        assert window.run("document.documentElement.scrollWidth") <= PHONE[0]


def test_names_that_are_markup_are_shown_as_names(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go("streams").page.get_by_label("Filter streams").fill("<img")
        window.see(MARKUP_STREAM)
        window.page.get_by_role("row", name=MARKUP_STREAM).click()
        window.see(MARKUP_STREAM, "h1")
        window.see("<b>x</b>", "pre")
        window.go("connections").see(MARKUP)
        assert window.run("document.querySelectorAll('img').length") == 1, "the sign in the corner"
        assert window.run("document.querySelectorAll('#main img, #main b, #main script').length") == 0


def test_a_script_that_would_come_into_the_page_is_refused(browser: Any, server: Server) -> None:
    """What the policy is for, should the code have a gap one day."""
    with Window(browser, server) as window:
        window.go("overview")
        markup = "document.body.innerHTML = '<b>x</b>'"
        assert window.run(f"(() => {{ try {{ {markup}; }} catch (error) {{ return error.name; }} }})()") == "TypeError"
        window.run("document.body.append(Object.assign(document.createElement('style'), {textContent: 'body{}'}))")
        window.run("fetch('https://example.invalid/').catch(() => 0)")
        assert any("Content Security Policy" in text for text in window.said)
        window.said.clear()


def test_a_long_list_has_few_elements_and_all_its_rows(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go("streams").see(f"{STREAMS + 2} streams with a replica on this node")
        assert window.run("document.querySelectorAll('.vt-row').length") < 60
        assert window.page.get_by_role("table", name="Streams").get_attribute("aria-rowcount") == str(STREAMS + 3)
        window.run("document.querySelector('.vt-scroll').scrollTop = 1e9")
        window.see(f"S{STREAMS - 1:03}")
        assert window.run("document.querySelectorAll('.vt-row').length") < 60
        window.page.get_by_label("Filter streams").fill("s07")
        window.see("10 streams")
        window.page.get_by_label("Order").select_option("messages")
        window.page.get_by_label("Filter streams").fill("")
        window.wait("document.querySelector('.vt-row .main').textContent === 'ORDERS'")


def test_the_keyboard_is_enough(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go("streams").see("S000")
        window.page.keyboard.press("/")
        assert window.run("document.activeElement.id") == "filter"
        window.page.locator(".vt-row[tabindex='0']").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowUp", "PageDown", "Home", "End"):
            window.page.keyboard.press(key)
        last = window.run("document.activeElement.getAttribute('aria-rowindex')")
        assert last == str(STREAMS + 3)
        window.wait("!document.activeElement.classList.contains('empty')")
        window.page.keyboard.press("Enter")
        window.wait("location.hash.startsWith('#/stream/')")


def test_consumers_are_seen_by_their_lag_first(browser: Any, server: Server) -> None:
    def row(number: int) -> str:
        return f"document.querySelector('.vt-row[aria-rowindex=\"{number + 2}\"] .main')?.textContent"

    end = "document.querySelector('.vt-scroll').scrollTop = 1e9"
    with Window(browser, server) as window:
        window.go("consumers").see(f"{CONSUMERS + 1} consumers")
        window.run(end)
        window.wait(f"{row(CONSUMERS)} === 'ahead'")
        window.page.get_by_label("Order").select_option("name")
        window.wait(f"{row(0)} === 'C000'")
        window.run(end)
        window.wait(f"{row(CONSUMERS)} === 'ahead'")
        window.page.get_by_label("Filter consumers").fill("c01")
        window.see("10 consumers")
        window.wait(f"{row(9)} === 'C019'")


def test_everything_that_acts_has_a_name(browser: Any, server: Server) -> None:
    nameless = """[...document.querySelectorAll('button, input, select, textarea, a, [role=table], [role=log], nav')]
        .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.closest('label'))).length"""
    with Window(browser, server) as window:
        for view, text in VIEWS.items():
            window.go(view).see(text)
            assert window.run(nameless) == 0, view


def test_streams_come_and_go_without_a_reload(browser: Any, server: Server) -> None:
    with Window(browser, server) as window, RawClient(server.address) as client:
        window.go("streams").see("S000")
        window.run("window.sameWindow = true")
        window.page.get_by_label("Filter streams").fill("live")
        client.api("STREAM.CREATE.LIVE", {"name": "LIVE", "subjects": ["live"]})
        window.see("LIVE")
        client.request("live", b"x")
        window.wait("document.querySelector('.vt-row .num').textContent === '1'")
        client.api("STREAM.DELETE.LIVE")
        window.see("0 streams")
        window.page.get_by_role("link", name="Events").click()
        window.see("Stream gone")
        assert window.run("window.sameWindow") is True


def test_the_theme_is_kept(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go("overview").page.get_by_role("button", name="Change between light and dark").click()
        assert window.run("document.documentElement.dataset.theme") == "dark"
        window.page.reload()
        window.see("healthy", "header")
        assert window.run("document.documentElement.dataset.theme") == "dark"
