"""The monitoring pages of both servers, every page with every parameter: status, type, fields and what is a fact."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from tests.conformance.monitored import KINDS, Stage, differences, page, staged

pytestmark = [pytest.mark.reference]
TARGETS: Final = """
    /varz /connz /connz?subs=1 /connz?subs=detail /connz?auth=1 /connz?auth=1&subs=detail&acc=A /connz?state=closed
    /connz?state=closed&auth=1 /connz?state=all /connz?state=any&auth=1 /connz?state=OPEN /connz?state=0
    /connz?state=nope /connz?sort=nope /connz?sort=reason /connz?sort=stop&state=all /connz?limit=x /connz?limit=-1
    /connz?limit=0 /connz?limit=2 /connz?offset=1&limit=1 /connz?offset=-1 /connz?offset=100 /connz?cid=x
    /connz?cid=99999 /connz?cid=-1 /connz?cid=99999999999999999999 /connz?limit=99999999999999999999 /connz?subs=x
    /connz?subs=DETAIL /connz?auth=x /connz?user=a /connz?user=a&auth=1 /connz?user=nobody&state=closed&auth=1
    /connz?acc=A /connz?acc=B&state=all /connz?acc=SYS&auth=1 /connz?more=1 /connz?limit=1&limit=2 /subsz
    /subsz?subs=1 /subsz?subs=x /subsz?acc=NONE /subsz?acc=A&subs=1 /subsz?test=foo.bar&subs=1&acc=A
    /subsz?test=foo.bar&subs=1 /subsz?test=t.*&subs=1 /subsz?test=a..b /subsz?test= /subsz?limit=x
    /subsz?offset=1000&subs=1 /subscriptionsz /routez /routez?subs=x /routez?subs=1 /routez?subs=detail /accountz
    /accountz?acc=A /accountz?acc=SYS /accountz?acc=NONE /accstatz /accstatz?unused=1 /accstatz?unused=x /raftz
    /raftz?acc=A /ipqueuesz /ipqueuesz?all=x /ipqueuesz?queues=a /jsz /jsz?acc=NONE /jsz?acc=A /jsz?acc=A&streams=1
    /jsz?accounts=1 /jsz?accounts=x /jsz?streams=1 /jsz?streams=x /jsz?consumers=1 /jsz?consumers=x /jsz?config=1
    /jsz?config=1&streams=1 /jsz?consumers=1&config=1 /jsz?config=x /jsz?leader-only=1 /jsz?leader-only=x
    /jsz?offset=x /jsz?limit=x /jsz?offset=5&accounts=1 /jsz?limit=1&accounts=1 /jsz?raft=1 /jsz?raft=x
    /jsz?stream-leader-only=1 /jsz?stream-leader-only=x /gatewayz?accs=x /gatewayz?gw_name=x&accs=1 /gatewayz /leafz
    /idz /statsz /expvarz /profilez
"""
MISSING: Final = {
    "/varz": "disk_io_wait_stats feature_flags.js_raft jetstream.limits.default_max_consumers http_req_stats",
    "/jsz": "limits.default_max_consumers",
    "/accountz": "account_detail.imports account_detail.exports",
}
FACTS: Final = """
    num_connections total offset limit connections.name connections.lang connections.version connections.kind
    connections.type connections.reason connections.authorized_user connections.account connections.name_tag
    connections.subscriptions connections.subscriptions_list connections.in_msgs connections.in_bytes system_account
    accounts account_detail.account_name account_detail.client_connections account_detail.jetstream_enabled
    account_statz.acc account_statz.conns num_routes streams consumers messages server_name tags max_connections
    auth_required
"""
SORTS: Final = ("cid", "start", "last", "idle", "uptime", "bytes_from")
CLOSED_SORTS: Final = ("cid", "start", "stop", "reason")


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Stage]]:
    """One of each kind."""
    with ExitStack() as stack:
        yield [stack.enter_context(staged(kind, tmp_path_factory.mktemp(kind))) for kind in KINDS]


def facts(document: Any, path: str = "") -> dict[str, list[Any]]:
    """What both servers have to say the same, by path; lists without regard to order where the reference has none."""
    found: dict[str, list[Any]] = {}
    items = document if isinstance(document, list) else [document]
    for item in items:
        for name, value in item.items() if isinstance(item, dict) else ():
            where = f"{path}{name}"
            if where in FACTS.split():
                found.setdefault(where, []).append(listed(value) if isinstance(value, list) else value)
            for deeper, values in facts(value, f"{where}.").items():
                found.setdefault(deeper, []).extend(values)
    return {where: values if where.startswith("conn") else sorted(values, key=str) for where, values in found.items()}


def listed(values: list[Any]) -> list[Any]:
    """A list without regard to its order, and without the inboxes of the test's own requests."""
    return sorted(value for value in values if not str(value).startswith("_INBOX."))


def left_out(target: str) -> tuple[str, ...]:
    """The fields of the reference that a page does not have here."""
    return tuple(MISSING.get(target.partition("?")[0], "").split())


@pytest.mark.parametrize("target", TARGETS.split())
def test_a_page_answers_as_the_reference_does(stages: list[Stage], target: str) -> None:
    (status, kind, theirs), (our_status, our_kind, ours) = [page(stage.server, target) for stage in stages]
    assert (our_status, our_kind) == (status, kind)
    if not isinstance(theirs, dict):
        assert ours == theirs
        return
    lacks = {path for path in differences(theirs, ours) if not path.startswith(left_out(target) or "-")}
    assert lacks == set()
    expected, found = facts(theirs), facts(ours)
    if target.startswith("/subsz"):  # what a server subscribes to itself is its own affair
        expected.pop("total"), found.pop("total")
    assert found == expected


def order(stage: Stage, target: str) -> list[str]:
    """Who is on a page, by name; refused clients have none."""
    return [row.get("name", "-") for row in page(stage.server, target)[2]["connections"]]


@pytest.mark.parametrize("sort", SORTS)
def test_connections_are_sorted_as_in_the_reference(stages: list[Stage], sort: str) -> None:
    names = [order(stage, f"/connz?sort={sort}") for stage in stages]
    if sort == "bytes_from":  # equal ones have no order
        names = [shown[:2] for shown in names]
    assert names[1] == names[0]


@pytest.mark.parametrize("sort", CLOSED_SORTS)
def test_closed_connections_are_sorted_as_in_the_reference(stages: list[Stage], sort: str) -> None:
    names = [order(stage, f"/connz?state=closed&sort={sort}") for stage in stages]
    if sort == "reason":
        names = [shown[:1] for shown in names]
    assert names[1] == names[0]


@pytest.mark.parametrize("sort", ["subs", "pending", "msgs_to", "msgs_from", "bytes_to", "rtt"])
def test_counters_sort_connections_the_largest_first(stages: list[Stage], sort: str) -> None:
    field = {
        "subs": "subscriptions", "pending": "pending_bytes", "msgs_to": "out_msgs", "msgs_from": "in_msgs",
        "bytes_to": "out_bytes",
    }.get(sort)  # fmt: skip
    rows = page(stages[1].server, f"/connz?sort={sort}")[2]["connections"]
    assert len(rows) == len(stages[1].clients)
    if field is not None:
        assert [row[field] for row in rows] == sorted((row[field] for row in rows), reverse=True)


def test_a_closed_connection_is_found_by_its_id_as_long_as_it_is_remembered(stages: list[Stage]) -> None:
    for stage in stages:
        found = [
            [row["cid"] for row in page(stage.server, f"/connz?state=closed&cid={cid}")[2]["connections"]]
            for cid in stage.closed
        ]
        assert found == [[], *([cid] for cid in stage.closed[1:])]  # max_closed_clients is 3, and one was refused


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/connz?mqtt_client=a", 400, "mqtt_client=a is not served"),
        ("/connz?filter_subject=a", 400, "filter by subject only valid with account filtering"),
        ("/debug/vars", 501, "the variables of Go's runtime have no counterpart here; /varz has this server's figures"),
    ],
)
def test_what_is_not_served_is_refused(stages: list[Stage], target: str, status: int, said: str) -> None:
    assert page(stages[1].server, target) == (status, "text/plain; charset=utf-8", said)


def test_connections_are_filtered_by_what_they_subscribe_to(stages: list[Stage]) -> None:
    asked = {"foo.x": ["one"], "foo.>": ["one"], "*.bar": ["one"], "foo": [], "foo.x.y": []}
    found = {wanted: order(stages[1], f"/connz?acc=A&filter_subject={wanted}") for wanted in asked}
    assert found == asked


def test_stacks_show_where_tasks_are(stages: list[Stage]) -> None:
    status, kind, body = page(stages[1].server, "/stacksz")
    assert (status, kind) == (200, "text/plain; charset=utf-8")
    assert "task jetraft.api.monitor.http.MonitorServer.run" in body
