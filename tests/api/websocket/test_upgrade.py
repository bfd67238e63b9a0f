"""Which requests are upgraded, by nats-server's rules, and what configurations there are."""

from pathlib import Path
from typing import Any

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.origins import OriginError, check_origin, host_and_port, parse_origin
from jetraft.api.options.websocket import HANDSHAKE_TIMEOUT_NS, Cookies, WebSocketOptions
from jetraft.api.plane.reasons import TEXTS, Reason
from jetraft.api.sessions.web_facts import with_cookies
from jetraft.api.websocket.closing import WITHOUT_FRAME, close_frames
from jetraft.api.websocket.upgrade import Upgraded, UpgradeRefused, UpgradeRequest, cookies_of, judge_upgrade
from tests.harness.raw_websocket import KEY

HEADERS = {
    "host": "localhost:8080",
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-key": KEY,
    "sec-websocket-version": "13",
}


def judged(
    options: WebSocketOptions | None = None, /, *, method: str = "GET", target: str = "/", **changes: str | None
) -> Upgraded | UpgradeRefused:
    """The verdict on a good request with some headers changed, or left out (None)."""
    fields = HEADERS | {name.replace("_", "-"): value for name, value in changes.items()}
    headers = [(name, value) for name, value in fields.items() if value is not None]
    request = UpgradeRequest(method=method, target=target, headers=headers)
    return judge_upgrade(request, options or WebSocketOptions())


@pytest.mark.parametrize(
    ("changes", "status", "why"),
    [
        ({"method": "POST"}, 405, "request method must be GET"),
        ({"host": None}, 400, "'Host' missing in request"),
        ({"upgrade": None}, 400, "invalid value for header 'Upgrade'"),
        ({"upgrade": "h2c, websockets"}, 400, "invalid value for header 'Upgrade'"),
        ({"connection": "close"}, 400, "invalid value for header 'Connection'"),
        ({"sec_websocket_key": None}, 400, "key missing"),
        ({"sec_websocket_key": "abc"}, 400, "invalid websocket key"),
        ({"sec_websocket_key": "QUJD"}, 400, "invalid websocket key"),
        ({"sec_websocket_version": "8"}, 400, "invalid version"),
        ({"target": "/a/mqtt"}, 404, "mqtt websocket endpoint not enabled"),
    ],
)
def test_what_is_no_request_for_an_upgrade_is_refused(changes: dict[str, Any], status: int, why: str) -> None:
    assert judged(**changes) == UpgradeRefused(status, why)


def test_the_answer_proves_that_the_server_speaks_websocket() -> None:
    verdict = judged(target="/any/path", upgrade="h2c , WebSocket")
    assert isinstance(verdict, Upgraded)
    assert verdict.answer == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"  # RFC 6455, 1.3
    )
    assert (verdict.masked, verdict.deflates, verdict.browser, verdict.forwarded_ip) == (True, False, False, "")


@pytest.mark.parametrize(
    ("offer", "compression", "deflates"),
    [
        ("permessage-deflate", True, True),
        ("x-other, permessage-deflate; client_max_window_bits", True, True),
        ("permessage-deflate", False, False),
        ("x-webkit-deflate-frame", True, False),
        (None, True, False),
    ],
)
def test_compression_is_agreed_on_when_both_want_it(offer: str | None, *, compression: bool, deflates: bool) -> None:
    verdict = judged(WebSocketOptions(compression=compression), sec_websocket_extensions=offer)
    assert isinstance(verdict, Upgraded)
    assert verdict.deflates == deflates
    line = b"permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    assert (line in verdict.answer) == deflates


def test_masks_browsers_proxies_and_headers_are_seen() -> None:
    options = WebSocketOptions(headers=(("X-A", "b"),))
    verdict = judged(options, nats_no_masking="true", user_agent="Mozilla/5.0", x_forwarded_for="2001:db8::1")
    assert isinstance(verdict, Upgraded)
    assert verdict.answer.endswith(b"\r\nNats-No-Masking: true\r\nX-A: b\r\n\r\n")
    assert (verdict.masked, verdict.browser, verdict.forwarded_ip) == (False, True, "2001:db8::1")
    for not_one in ("1.2.3.4, 5.6.7.8", "1.2.3.4\n", "bogus", "fe80::1%eth0", ""):
        seen = judged(x_forwarded_for=not_one)
        assert isinstance(seen, Upgraded)
        assert seen.forwarded_ip == ""


@pytest.mark.parametrize(
    ("stated", "host", "is_tls", "why"),
    [
        ("http://localhost", "localhost", False, ""),
        ("http://LocalHost:80", "localhost", False, ""),
        ("https://localhost", "localhost:443", True, ""),
        ("http://localhost", "localhost:443", True, "not same origin"),
        ("https://localhost:80", "localhost:80", False, "not same origin"),
        ("http://localhost:81", "localhost", False, "not same origin"),
        ("http://[::1]:80", "[::1]:80", False, ""),
        ("null", "localhost", False, 'parse "null": invalid URI for request'),
        ("http://a:b:c", "localhost", False, "address a:b:c: too many colons in address"),
        ("", "localhost", False, ""),
    ],
)
def test_the_same_origin_is_host_port_and_scheme(stated: str, host: str, *, is_tls: bool, why: str) -> None:
    if not why:
        check_origin(stated, host, is_tls=is_tls, same=True, allowed=())
        return
    with pytest.raises(OriginError) as caught:
        check_origin(stated, host, is_tls=is_tls, same=True, allowed=())
    assert str(caught.value) == why


def test_an_origin_has_to_be_in_the_list() -> None:
    allowed = (parse_origin("http://a.b"), parse_origin("https://c:444"))
    for stated in ("http://A.B", "HTTP://a.b:80", "https://c:444", ""):
        check_origin(stated, "x", is_tls=False, same=False, allowed=allowed)
    for stated in ("http://a.b:81", "https://a.b", "https://c", "//a.b", "http://a.b.evil"):
        with pytest.raises(OriginError, match="not in the allowed list"):
            check_origin(stated, "x", is_tls=False, same=False, allowed=allowed)
    verdict = judged(WebSocketOptions(origins=allowed), sec_websocket_origin="http://d")
    assert verdict == UpgradeRefused(403, "origin not allowed: not in the allowed list")


def test_hosts_and_ports_are_split_as_go_does() -> None:
    assert host_and_port("A", is_tls=False) == ("a", "80")
    assert host_and_port("[::1]", is_tls=True) == ("[::1]", "443")
    assert host_and_port("[::1]:7", is_tls=True) == ("::1", "7")
    for wrong in ("[::1", "[::1]x", "::1"):
        with pytest.raises(OriginError):
            host_and_port(wrong, is_tls=False)


def test_cookies_stand_for_what_a_connect_leaves_out() -> None:
    names = Cookies(user="u", password="p", token="t")
    given = cookies_of(['u=a; x=1;p="q"', "u=b; t; j=jwt"], names)
    assert given == Cookies(user="b", password="q")
    assert with_cookies({"user": "c"}, given) == {"user": "c", "pass": "q"}
    assert with_cookies({"auth_token": "t"}, Cookies(token="s", jwt="j")) == {"auth_token": "t", "jwt": "j"}
    assert "q" not in repr(given)


def test_each_reason_has_a_close_frame_or_a_reason_for_none() -> None:
    frames = close_frames()
    assert set(frames) == {int(reason) for reason in Reason if reason not in WITHOUT_FRAME}
    assert frames[Reason.SERVER_SHUTDOWN] == b"\x03\xe9Server Shutdown"
    assert all(frame[2:].decode() == TEXTS[Reason(number)] for number, frame in frames.items())


def options_of(tmp_path: Path, text: str) -> WebSocketOptions | None:
    path = tmp_path / "n.conf"
    path.write_text(text)
    return build_options(load_settings(path)).websocket


def test_a_block_fills_the_options(tmp_path: Path) -> None:
    options = options_of(
        tmp_path,
        """ws {
        listen: "127.0.0.1:8080", advertise: "a:1", no_tls: true, same_origin: true, allow_origins: ["http://a"]
        compress: true, handshake_timeout: 3s, ping_interval: 7s, headers { X-A: b, X-B: "c d" }
        authorization { user: u, pass: p, timeout: 4 }, user_cookie: c }""",
    )
    assert options is not None
    assert (options.host, options.port, options.advertise, options.scheme) == ("127.0.0.1", 8080, "a:1", "ws")
    assert (options.same_origin, options.allowed_origins, options.compression) == (True, ("http://a",), True)
    assert (options.handshake_timeout_ns, options.ping_interval_ns, options.auth_timeout_ns) == (3e9, 7e9, 4e9)
    assert (options.username, options.password.equals("p"), options.overrides_auth) == ("u", True, True)
    assert options.headers == (("X-A", "b"), ("X-B", "c d"))
    assert options.cookies == Cookies(user="c")


def test_without_a_port_nothing_is_served_and_defaults_are_bounded(tmp_path: Path) -> None:
    assert options_of(tmp_path, "websocket { no_tls: true }") is None
    options = options_of(tmp_path, "websocket { port: -1, no_tls: true, handshake_timeout: 0 }")
    assert options is not None
    assert (options.host, options.handshake_timeout_ns) == ("0.0.0.0", HANDSHAKE_TIMEOUT_NS)


USERS = "\nauthorization { users [{user: a, password: b}] }"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("websocket { port: 1 }", "websocket requires TLS configuration"),
        ("websocket: 5", "n.conf:1:1: expected websocket to be a map, got 5"),
        ("websocket { prot: 1 }", 'n.conf:1:13: unknown field "prot" in websocket'),
        ("websocket { no_tls: 1 }", "n.conf:1:13: no_tls: expected true or false, got 1"),
        ("websocket { port: 70000, no_tls: true }", "websocket port: expected a port from -1 to 65535, got 70000"),
        ("websocket { headers { Host: a } }", 'n.conf:1:13: websocket: invalid header "Host" not allowed'),
        (
            "websocket { headers { Sec-WebSocket-X: a } }",
            'n.conf:1:13: websocket: invalid header "Sec-WebSocket-X", "Sec-WebSocket-" prefix not allowed',
        ),
        ('websocket { headers { "X": "a\\r\\nb" } }', 'n.conf:1:13: websocket: invalid header "X"'),
        (
            "websocket { port: 1, no_tls: true, allowed_origins: [b] }",
            'unable to parse allowed origin: parse "b": invalid URI for request',
        ),
        (
            'websocket { port: 1, no_tls: true, origin: "ftp://b" }',
            ('unable to parse allowed origin "ftp://b": '
            "allowed origins must be absolute URLs with http or https scheme"),
        ),
        (
            'websocket { port: 1, no_tls: true, origin: "http://" }',
            'unable to parse allowed origin "http://": host is required',
        ),
        (
            "websocket { port: 1, no_tls: true, no_auth_user: b }",
            'no_auth_user: "b" present, but users/nkeys are not defined',
        ),
        (
            "websocket { port: 1, no_tls: true, no_auth_user: c }" + USERS,
            'no_auth_user: "c" not present as user or nkey in authorization block or account configuration',
        ),
        (
            "websocket { port: 1, no_tls: true, authorization { user: c } }" + USERS,
            "websocket authentication username not compatible with presence of users/nkeys",
        ),
        (
            "websocket { port: 1, no_tls: true, authorization { token: c } }" + USERS,
            "websocket authentication token not compatible with presence of users/nkeys",
        ),
        (
            "websocket { port: 1, no_tls: true, jwt_cookie: c }",
            'trusted operators or trusted keys configuration is required for JWT authentication via cookie "c"',
        ),
        (
            "websocket { authorization { password: 5 } }",
            "n.conf:1:29: password: expected a string, got a number",
        ),
    ],
)  # fmt: skip
def test_a_block_that_cannot_be_served_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options_of(tmp_path, text)
    assert str(caught.value).removeprefix(f"{tmp_path}/") == message
