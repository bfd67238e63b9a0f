"""Signing in on a real server: a client's logins, a client's rights, and nothing that another site can send."""

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from jetraft.api.monitor.ui.sign_in import PER_ADDRESS_MAX
from tests.api.monitor.ui.test_events import Listener
from tests.harness.certificates import Authority
from tests.harness.patience import PATIENCE_S, until
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Server

USERS = """
accounts {
  A: { jetstream: enabled, users: [
    { user: all, password: secret }
    { user: reader, password: read, permissions: {
        publish: ["$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.S"], subscribe: "_INBOX.>" } }
    { user: hashed, password: "$2b$04$/Gb00C7GqhyzeCP500sIo.dbbaceFXOyTPfUpMfDapPw.gs3gFYum" }
  ] }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
"""


class Dashboard:
    """A browser with the page open: it sends what the page sends, or what a test changes of that."""

    def __init__(self, server: Server, host: str = "") -> None:
        self.server = server
        self.host = host or f"{HOST}:{server.http_port}"
        self.cookie = ""
        self.given: str = ""
        self.connection = http.client.HTTPConnection(HOST, server.http_port, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: Any = None, **changed: str | None) -> tuple[int, Any]:
        headers: dict[str, str | None] = {"Host": self.host, "Cookie": self.cookie or None}
        if method == "POST":
            headers |= {
                "Origin": f"http://{self.host}",
                "X-Jetraft-Dashboard": "1",
                "Content-Type": "application/json",
                "Sec-Fetch-MonitorSite": "same-origin",
            }
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kept = {name: value for name, value in headers.items() if value is not None}
        self.connection.request(method, path, data, kept)
        response = self.connection.getresponse()
        self.response = response
        text = response.read()
        if (given := response.headers["Set-Cookie"]) is not None:
            self.given, self.cookie = given, given.split(";")[0]
        return response.status, json.loads(text) if text[:1] in {b"{", b"["} else text

    def sign_in(self, **login: str) -> tuple[int, Any]:
        return self.ask("POST", "/ui/login", login)

    def request(self, subject: str, payload: Any = "", **more: Any) -> tuple[int, Any]:
        return self.ask("POST", "/ui/request", {"subject": subject, "payload": payload, **more})

    def api(self, operation: str, payload: Any = "") -> Any:
        status, answer = self.request(f"$JS.API.{operation}", payload)
        assert status == 200, answer
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.cookie:  # an address has so many places
            self.ask("POST", "/ui/logout", {})
        self.connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path_factory.mktemp("signed"), config=USERS) as running:
        login: dict[str, Any] = {"user": "all", "pass": "secret"}
        with RawClient(running.address, **login) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            client.request("s.a", b'{"<b>": 1}')
        yield running


@pytest.fixture
def dashboard(server: Server) -> Iterator[Dashboard]:
    with Dashboard(server) as opened:
        yield opened


@pytest.mark.parametrize(
    ("user", "password", "account"), [("all", "secret", "A"), ("sys", "sys", "SYS"), ("hashed", "foo", "A")]
)
def test_a_user_of_an_account_signs_in_and_out(dashboard: Dashboard, user: str, password: str, account: str) -> None:
    status, who = dashboard.sign_in(user=user, **{"pass": password})
    assert (status, who["user"], who["account"], who["is_system"]) == (200, user, account, account == "SYS")
    for word in ("HttpOnly", "SameSite=Strict", "Path=/ui", "Max-Age="):
        assert word in dashboard.given
    assert "Secure" not in dashboard.given, "this monitor is plain HTTP"
    assert dashboard.ask("GET", "/ui/session")[1]["user"] == user
    assert dashboard.ask("POST", "/ui/logout", {})[0] == 200
    assert "Max-Age=0" in dashboard.given
    assert dashboard.ask("GET", "/ui/session")[1]["signed_in"] is False


@pytest.mark.parametrize(
    "login",
    [
        {"user": "all", "pass": "wrong"},
        {"user": "nobody", "pass": "secret"},
        {"user": "hashed", "pass": "bar"},
        {"token": "secret"},
        {},
    ],
    ids=str,
)
def test_other_logins_are_refused_and_no_cookie_is_given(dashboard: Dashboard, login: dict[str, str]) -> None:
    status, answer = dashboard.sign_in(**login)
    assert (status, dashboard.given) == (401, "")
    assert answer["error"]["description"] == "Authorization Violation"
    assert dashboard.request("$JS.API.INFO")[0] == 401
    secrets = [value for name, value in login.items() if name in {"pass", "token"}]
    assert not any(f"{secret}\n" in line for secret in secrets for line in dashboard.server.running.lines)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"user": 1}', b'{"user": "all", "pass": "secret", "more": "x"}', b"null", b"\xff"]
)
def test_what_is_no_login_is_a_bad_request(dashboard: Dashboard, body: bytes) -> None:
    assert dashboard.ask("POST", "/ui/login", body)[0] == 400


@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"X_Jetraft_Dashboard": None},
        {"Sec_Fetch_Site": "cross-site"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/ui/login", "/ui/logout", "/ui/request"])
def test_requests_of_other_sites_do_not_act(dashboard: Dashboard, path: str, changed: Mapping[str, str | None]) -> None:
    assert dashboard.sign_in(user="all", **{"pass": "secret"})[0] == 200
    bodies = {"/ui/login": {"user": "sys", "pass": "sys"}, "/ui/request": {"subject": "$JS.API.STREAM.PURGE.S"}}
    status, _ = dashboard.ask("POST", path, bodies.get(path, {}), **changed)
    assert status == 403
    assert dashboard.ask("GET", "/ui/session")[1]["user"] == "all", "neither signed out nor somebody else"
    assert dashboard.api("STREAM.INFO.S")["state"]["messages"] == 1
    assert dashboard.ask("GET", "/ui/request")[0] == 403


def test_a_request_is_the_users_own_and_has_the_users_rights(dashboard: Dashboard) -> None:
    assert dashboard.sign_in(user="reader", **{"pass": "read"})[0] == 200
    assert dashboard.api("STREAM.INFO.S")["config"]["name"] == "S"
    message = dashboard.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
    assert base64.b64decode(message["data"]) == b'{"<b>": 1}'
    for subject in ("$JS.API.STREAM.PURGE.S", "s.a", "$SYS.REQ.SERVER.PING"):
        status, answer = dashboard.request(subject)
        assert status == 403
        assert answer["error"]["description"] == f'Permissions Violation for Publish to "{subject}"'
    assert dashboard.api("STREAM.INFO.S")["state"]["messages"] == 1, "the sign-in goes on after a refusal"
    connections = dashboard.server.get("/connz?auth=1")[1]["connections"]
    assert [row["authorized_user"] for row in connections if row.get("name") == "dashboard"][-1] == "reader"


def test_who_may_changes_streams_and_publishes(dashboard: Dashboard) -> None:
    assert dashboard.sign_in(user="all", **{"pass": "secret"})[0] == 200
    assert dashboard.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]})["did_create"] is True
    status, ack = dashboard.request("t.a", "text", headers={"Nats-Msg-Id": "one"})
    assert (status, ack["stream"], ack["seq"]) == (200, "T", 1)
    assert dashboard.request("t.a", "text", headers={"Nats-Msg-Id": "one"})[1]["duplicate"] is True
    assert dashboard.api("STREAM.PURGE.T", {})["purged"] == 1
    assert dashboard.request("nobody.listens")[0] == 503
    assert dashboard.api("STREAM.DELETE.T")["success"] is True


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"subject": "s.a\r\nPUB s.b 0"}, 400),
        ({"subject": "s.*"}, 400),
        ({"subject": ""}, 400),
        ({"subject": 5}, 400),
        ([], 400),
        ({"subject": "s.a", "payload": 5}, 400),
        ({"subject": "s.a", "headers": {"a": "b\r\nc: d"}}, 400),
        ({"subject": "s.a", "headers": {"a:b": "c"}}, 400),
        ({"subject": "s.a", "headers": {str(at): "x" for at in range(100)}}, 400),
        ({"subject": "s.a", "payload": "x" * 300_000}, 413),
    ],
    ids=lambda value: str(value)[:60],
)
def test_nonsense_is_refused_and_the_sign_in_goes_on(dashboard: Dashboard, request_: Any, status: int) -> None:
    assert dashboard.sign_in(user="all", **{"pass": "secret"})[0] == 200
    assert dashboard.ask("POST", "/ui/request", request_)[0] == status
    assert dashboard.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_guessed_cookie_is_nobody(dashboard: Dashboard) -> None:
    assert dashboard.sign_in(user="all", **{"pass": "secret"})[0] == 200
    name = dashboard.cookie.partition("=")[0]
    for guess in (f"{name}=", f"{name}=x", f"{dashboard.cookie}x", "\x80=;;", f'{name}="'):
        assert dashboard.ask("POST", "/ui/request", {"subject": "$JS.API.INFO"}, Cookie=guess)[0] == 401


def test_an_address_has_so_many_places(dashboard: Dashboard) -> None:
    taken = []
    for _ in range(PER_ADDRESS_MAX):
        dashboard.cookie = ""
        assert dashboard.sign_in(user="reader", **{"pass": "read"})[0] == 200
        taken.append(dashboard.cookie)
    dashboard.cookie = ""
    assert dashboard.sign_in(user="reader", **{"pass": "read"})[0] == 503
    for cookie in taken:
        dashboard.cookie = cookie
        assert dashboard.ask("POST", "/ui/logout", {})[0] == 200
    dashboard.cookie = ""
    assert dashboard.sign_in(user="reader", **{"pass": "read"})[0] == 200


def test_a_user_who_is_gone_after_a_reload_is_signed_out(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=USERS) as server, Dashboard(server) as dashboard:
        assert dashboard.sign_in(user="reader", **{"pass": "read"})[0] == 200
        (tmp_path / "server.conf").write_text(USERS.replace("user: reader", "user: other"), encoding="utf-8")
        server.running.signal(1)
        until(lambda: dashboard.ask("GET", "/ui/session")[1]["signed_in"] is False)
        assert dashboard.request("$JS.API.STREAM.INFO.S")[0] == 401
        assert server.healthy()


def test_rights_that_a_reload_takes_are_gone_at_once(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=USERS) as server, Dashboard(server) as dashboard:
        assert dashboard.sign_in(user="all", **{"pass": "secret"})[0] == 200
        changed = USERS.replace("password: secret }", 'password: secret, permissions: { publish: "$JS.API.INFO" } }')
        (tmp_path / "server.conf").write_text(changed, encoding="utf-8")
        server.running.signal(1)
        until(lambda: dashboard.request("$JS.API.STREAM.NAMES")[0] in {401, 403})


def test_advisories_reach_who_is_signed_in_and_nobody_else(server: Server, dashboard: Dashboard) -> None:
    assert dashboard.sign_in(user="all", **{"pass": "secret"})[0] == 200
    own, stranger = Listener(server, Cookie=dashboard.cookie), Listener(server)
    own.next("figures")
    stranger.next("figures")
    dashboard.api("STREAM.CREATE.NEW", {"name": "NEW", "subjects": ["new"]})
    advisory = own.next("advisory")
    assert advisory["subject"] == "$JS.EVENT.ADVISORY.STREAM.CREATED.NEW"
    assert json.loads(advisory["payload"])["stream"] == "NEW"
    kinds = []
    while "change" not in kinds:  # that the stream is there, a look later
        kinds.append(stranger.next_of_any()[0])
    assert "advisory" not in kinds
    dashboard.api("STREAM.DELETE.NEW")
    dashboard.ask("POST", "/ui/logout", {})
    while own.next("change")["what"] != "signed_out":
        pass
    own.connection.close()
    stranger.connection.close()


def test_without_users_one_signs_in_on_the_own_machine_only(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        with Dashboard(server) as local:
            status = local.ask("GET", "/ui/session")[1]
            assert (status["signed_in"], status["needs_login"], status["why_not"]) == (False, False, "")
            assert local.sign_in()[0] == 200
            assert local.api("INFO")["streams"] == 0
        with Dashboard(server, host=f"rebound.example:{server.http_port}") as rebound:
            assert "own machine" in rebound.ask("GET", "/ui/session")[1]["why_not"]
            assert rebound.sign_in()[0] == 403


def test_where_clients_use_tls_a_password_does_not_come_in_the_clear(tmp_path: Path) -> None:
    config = f"{USERS}\ntls {{ {Authority.make(tmp_path).sign('server').block} }}\n"
    with Server("jetraft", directory=tmp_path, config=config) as server:
        with Dashboard(server, host=f"n1.example:{server.http_port}") as remote:
            status, answer = remote.sign_in(user="all", **{"pass": "secret"})
            assert (status, "TLS" in answer["error"]["description"]) == (403, True)
        with Dashboard(server) as local:
            assert local.sign_in(user="all", **{"pass": "secret"})[0] == 200


def test_where_clients_show_certificates_nobody_signs_in(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    tls = f'{authority.sign("server").block}ca_file: "{authority.ca_file}"\nverify: true'
    with (
        Server("jetraft", directory=tmp_path, config=f"{USERS}\ntls {{ {tls} }}\n") as server,
        Dashboard(server) as dashboard,
    ):
        status, answer = dashboard.sign_in(user="all", **{"pass": "secret"})
        assert (status, "certificate" in answer["error"]["description"]) == (403, True)
