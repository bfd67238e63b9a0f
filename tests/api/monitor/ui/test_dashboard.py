"""The dashboard's page and lists on a real server: headers, names that are markup, parts of lists, refusals."""

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.monitor.questions import ROWS_MAX, ROWS_SHOWN, ListQuestion, from_query
from jetraft.api.monitor.ui.assets import FILES, HEADERS
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server

MARKUP = "<img\"onerror='alert(1)'"  # as far as the name of a stream can be
LISTS = ("/ui/streams", "/ui/consumers", "/ui/accounts", "/ui/groups")
STATIC = ROOT / "api" / "monitor" / "ui" / "static"


def ask(server: Server, path: str, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(HOST, server.http_port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def rows(server: Server, path: str) -> list[dict[str, Any]]:
    response, body = ask(server, path)
    assert response.status == 200, body
    found: list[dict[str, Any]] = json.loads(body)["rows"]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("ui")
    with (
        Server("jetraft", directory=directory, config='http_base_path: "/base"') as running,
        RawClient(running.address, name="<b>client</b>") as client,
    ):
        for number in range(30):
            name = f"S{number:02}"
            client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"s{number}.>"]})
            for _ in range(number % 3):
                client.request(f"s{number}.a", b"x")
        client.api(f"STREAM.CREATE.{MARKUP}", {"name": MARKUP, "subjects": ["<script>alert(1)</script>"]})
        for number in range(25):
            config = {"durable_name": f"C{number}", "ack_policy": "explicit", "filter_subject": "s2.a"}
            client.api(f"CONSUMER.CREATE.S02.C{number}", {"stream_name": "S02", "config": config})
        yield running


@pytest.mark.parametrize("path", [*FILES, *LISTS, "/ui/stream?acc=$G&stream=S01", "/ui/streams?sort=wrong"])
def test_every_answer_below_the_dashboard_has_its_headers(server: Server, path: str) -> None:
    response, _ = ask(server, "/base" + path)
    for name, value in HEADERS:
        assert response.headers[name] == value


def test_the_policy_lets_nothing_run_that_stands_in_a_page(server: Server) -> None:
    policy = ask(server, "/base/ui")[0].headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy, "no other origin"
    page = ask(server, "/base/ui")[1].decode()
    assert re.findall(r"<script(?![^>]* src=\"ui/)", page) == []
    assert re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|https?://", page) is None


def test_the_script_makes_no_markup_of_text() -> None:
    script = (STATIC / "app.js").read_text(encoding="utf-8")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in script
    assert re.findall(r"https?://[^\s\"]+", script) == ["http://www.w3.org/2000/svg"]


def test_what_the_page_loads_is_served_and_the_front_page_leads_to_it(server: Server) -> None:
    page = ask(server, "/base/ui")[1].decode()
    for path in re.findall(r'(?:src|href)="([^"#]+)"', page):
        response, body = ask(server, f"/base/{path}")
        assert (response.status, len(body) > 0) == (200, True)
    assert 'href="./ui"' in ask(server, "/base/")[1].decode()
    assert ask(server, "/ui")[0].status == 404


def test_names_that_are_markup_are_data(server: Server) -> None:
    response, body = ask(server, "/base/ui/streams?filter=%3Cimg")
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    (row,) = json.loads(body)["rows"]
    assert (row["name"], row["subjects"]) == (MARKUP, ["<script>alert(1)</script>"])
    response, body = ask(server, "/base/ui/streams?sort=%3Cb%3E")
    assert (response.status, response.headers["Content-Type"]) == (400, "text/plain; charset=utf-8")


def test_streams_come_in_parts_and_orders(server: Server) -> None:
    names = [row["name"] for row in rows(server, "/base/ui/streams?sort=name&limit=500")]
    assert len(names) == 31
    assert names == sorted(names)
    parts = [
        row["name"] for at in range(0, 40, 7) for row in rows(server, f"/base/ui/streams?sort=name&offset={at}&limit=7")
    ]
    assert parts == names
    most = [row["messages"] for row in rows(server, "/base/ui/streams?sort=messages&desc=1")]
    assert most == sorted(most, reverse=True)
    assert most[0] == 2
    assert [row["name"] for row in rows(server, "/base/ui/streams?filter=s07")] == ["S07"]
    assert rows(server, "/base/ui/streams?acc=nobody") == []


def test_a_row_says_what_the_stream_is(server: Server) -> None:
    (row,) = rows(server, "/base/ui/streams?filter=S02")
    assert (row["account"], row["leader"], row["leads"], row["consumers"]) == ("$G", "n1", True, 25)
    assert (row["messages"], row["first_seq"], row["last_seq"]) == (2, 1, 2)
    assert row["replicas"] == [{"name": "n1", "leader": True, "own": True, "lag": 0, "current": True, "up": True}]
    info = json.loads(ask(server, "/base/ui/stream?acc=$G&stream=S02")[1])["info"]
    assert info["config"]["subjects"] == ["s2.>"]
    status = ask(server, "/base/ui/stream?acc=$G&stream=NONE")[0].status
    assert status == 404


def test_consumers_come_in_parts(server: Server) -> None:
    names = [row["name"] for row in rows(server, "/base/ui/consumers?stream=S02")]
    assert names == [f"C{number}" for number in range(25)]
    assert [row["name"] for row in rows(server, "/base/ui/consumers?offset=20&limit=10")] == names[20:]
    (row,) = rows(server, "/base/ui/consumers?filter=c24")
    assert (row["stream"], row["num_pending"], row["num_ack_pending"], row["filters"]) == ("S02", 2, 0, ["s2.a"])


def test_consumers_are_ordered_by_what_is_asked_for_in_parts(server: Server) -> None:
    sent = {"L0": 1, "L1": 4, "L2": 6, "L3": 3, "L4": 5}
    with RawClient(server.address) as client:
        client.api("STREAM.CREATE.LAGS", {"name": "LAGS", "subjects": ["lags.*"]})
        for name, count in sent.items():
            config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"lags.{name}"}
            client.api(f"CONSUMER.CREATE.LAGS.{name}", {"stream_name": "LAGS", "config": config})
            for _ in range(count):
                client.request(f"lags.{name}", b"x")
        for name in ("L4", "L2"):  # L4 waits longest for an acknowledgement; L1 and L4 lack most then
            client.request(f"$JS.API.CONSUMER.MSG.NEXT.LAGS.{name}", b"1")
        client.request("$JS.API.CONSUMER.MSG.NEXT.LAGS.L2", b"1")

        def names(order: str) -> list[str]:
            return [row["name"] for row in rows(server, f"/base/ui/consumers?stream=LAGS&{order}")]

        assert names("sort=lag&desc=1") == ["L1", "L2", "L4", "L3", "L0"], "equal ones as they were created"
        assert [one for at in range(0, 6, 2) for one in names(f"sort=lag&desc=1&offset={at}&limit=2")] == names(
            "sort=lag&desc=1"
        )
        assert names("sort=lag")[0] == "L0"
        assert names("sort=unacked&desc=1")[:2] == ["L2", "L4"]
        assert names("sort=oldest&desc=1") == ["L4", "L2", "L0", "L1", "L3"]
        assert names("sort=name&desc=1") == ["L4", "L3", "L2", "L1", "L0"]
        assert names("sort=lag&desc=1&filter=l3") == ["L3"]
        client.api("STREAM.DELETE.LAGS")
    assert ask(server, "/base/ui/consumers?sort=size")[0].status == 400


def test_accounts_and_groups(server: Server) -> None:
    (account,) = rows(server, "/base/ui/accounts")
    assert (account["name"], account["streams"], account["streams_led"], account["consumers"]) == ("$G", 31, 31, 25)
    found = rows(server, "/base/ui/groups?limit=500")
    assert found[0]["stream"] == "_meta_"
    assert len(found) == 32
    assert {row["role"] for row in found} == {"leader"}


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("query", ["limit=1000000", "limit=-1", "offset=-5", "offset=99999999", "filter=%00%ff"])
def test_a_list_is_answered_whatever_part_is_asked(server: Server, path: str, query: str) -> None:
    assert len(rows(server, f"/base{path}?{query}")) <= 32


@pytest.mark.parametrize(
    ("limit", "shown"), [("", ROWS_SHOWN), ("7", 7), ("-1", 0), ("0", 0), ("501", ROWS_MAX), ("999999999", ROWS_MAX)]
)
def test_a_page_has_so_many_rows_at_most(limit: str, shown: int) -> None:
    assert from_query(ListQuestion, {"limit": limit}).rows_max == shown


def test_wrong_arguments_are_refused_with_their_name(server: Server) -> None:
    response, body = ask(server, "/base/ui/streams?limit=many")
    assert (response.status, b"'limit'" in body) == (400, True)


def test_a_server_without_jetstream_has_the_page_and_empty_lists(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, jetstream=False) as running:
        assert ask(running, "/ui")[0].status == 200
        for path in LISTS:
            assert rows(running, path) == []
        assert ask(running, "/ui/stream?acc=$G&stream=S")[0].status == 404
