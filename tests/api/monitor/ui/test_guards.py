"""Which requests a browser may send: those of the dashboard's own page, and no others."""

from typing import Any

import pytest

from jetraft.api.monitor.ui.guards import is_cross_site, is_local, why_not_own
from jetraft.api.monitor.web_request import WebRequest

OWN = {
    "host": "n1.example:8222",
    "origin": "http://n1.example:8222",
    "x-jetraft-dashboard": "1",
    "content-type": "application/json",
    "sec-fetch-site": "same-origin",
}


def asked(ip: str = "192.0.2.1", method: str = "POST", **changed: str) -> WebRequest:
    headers: dict[str, Any] = OWN | {name.replace("_", "-"): value for name, value in changed.items()}
    kept = {name: value for name, value in headers.items() if value}
    return WebRequest(method=method, arguments={}, headers=kept, ip=ip, port=1, is_secure=False)


@pytest.mark.parametrize(
    "request_",
    [
        asked(),
        asked(sec_fetch_site=""),
        asked(host="N1.example:8222"),
        asked(origin="https://n1.example:8222"),
        asked(content_type="application/json; charset=utf-8"),
    ],
)
def test_what_the_own_page_sends_may_act(request_: WebRequest) -> None:
    assert why_not_own(request_) == ""


@pytest.mark.parametrize(
    "request_",
    [
        asked(method="GET"),
        asked(x_jetraft_dashboard=""),
        asked(origin=""),
        asked(origin="null"),
        asked(origin="http://evil.example"),
        asked(origin="http://n1.example"),
        asked(origin="http://n1.example:8223"),
        asked(origin="http://n1.example:8222.evil.example"),
        asked(origin="http://n1.example:8222@evil.example"),
        asked(origin="http://n1.example:8222, http://evil.example"),
        asked(origin="http://[n1.example"),
        asked(host=""),
        asked(sec_fetch_site="cross-site"),
        asked(sec_fetch_site="same-site"),
        asked(content_type="text/plain"),
        asked(content_type=""),
        asked(content_type="application/x-www-form-urlencoded"),
    ],
    ids=lambda request: str(request.headers),
)
def test_what_another_page_could_send_does_not_act(request_: WebRequest) -> None:
    assert why_not_own(request_)


@pytest.mark.parametrize(
    ("site", "is_foreign"), [("", False), ("none", False), ("same-origin", False), ("same-site", True), ("x", True)]
)
def test_the_site_of_a_request(site: str, is_foreign: bool) -> None:  # noqa: FBT001  a table
    assert is_cross_site(asked(sec_fetch_site=site)) is is_foreign


@pytest.mark.parametrize(
    ("ip", "host", "local"),
    [
        ("127.0.0.1", "127.0.0.1:8222", True),
        ("127.9.9.9", "localhost:8222", True),
        ("::1", "[::1]:8222", True),
        ("127.0.0.1", "evil.example:8222", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("192.0.2.1", "127.0.0.1:8222", False),
        ("192.0.2.1", "localhost", False),
        ("", "localhost", False),
    ],
)
def test_local_is_this_machine_under_a_name_that_no_site_has(ip: str, host: str, local: bool) -> None:  # noqa: FBT001
    assert is_local(asked(ip, host=host)) is local


@pytest.mark.parametrize("name", ["forwarded", "x_forwarded_for", "x_real_ip", "via"])
def test_what_a_proxy_of_this_machine_hands_on_is_not_local(name: str) -> None:
    assert is_local(asked("127.0.0.1", host="localhost"))
    assert not is_local(asked("127.0.0.1", host="localhost", **{name: "192.0.2.1"}))
