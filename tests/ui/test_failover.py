"""A failover of a stream on three nodes, as a page that is open on another node shows it, and the pictures for docs."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.ui.browser import PHONE, Window

pytestmark = pytest.mark.browser
STREAM: Final = {"name": "ORDERS", "subjects": ["orders.>"], "num_replicas": 3}
OTHERS: Final = ("INVOICES", "PAYMENTS", "SHIPMENTS", "AUDIT", "SESSIONS", "METRICS", "RETURNS", "PRICES")
STEPS: Final = 50  # of load, half a second each, for lines with a shape


def test_a_failover_is_seen_without_a_reload(browser: Any, tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        with RawClient(cluster[0].address) as client:
            leader = client.api("STREAM.CREATE.ORDERS", STREAM)["cluster"]["leader"]
        watching = next(node for node in cluster if node.name != leader)
        with Window(browser, watching) as window:
            window.go("streams").see("ORDERS")
            window.run("window.sameWindow = true")
            window.wait(f"document.querySelector('.chip.leader').textContent === '{leader}'")
            cluster.named(leader).kill()
            window.wait(
                "(() => { const leader = document.querySelector('.chip.leader');"
                f" return leader !== null && leader.textContent !== '{leader}'; }})()"
            )
            window.wait(f"document.querySelector('.chip.down')?.textContent === '{leader}'")
            window.see("degraded")
            window.picture("dashboard-failover")
            window.page.get_by_role("link", name="Events").click()
            window.see("New leader")
            window.see(f"{leader} cannot be reached from this node")
            cluster.named(leader).start()
            window.see(f"{leader} is reached again")
            window.picture("dashboard-events")
            window.page.get_by_role("link", name="Streams").click()
            window.wait(
                "document.querySelector('.chip.down') === null && document.querySelectorAll('.chip').length === 3"
            )
            assert window.run("window.sameWindow") is True


def fill(client: RawClient) -> None:
    """Streams, consumers and messages of a shop."""
    for number, name in enumerate(OTHERS):
        subjects = [f"{name.lower()}.>"]
        replicas = 3 if number % 3 else 1
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "num_replicas": replicas})
    client.api("STREAM.CREATE.ORDERS", STREAM)
    for name in ("billing", "shipping", "search-index", "fraud-check"):
        config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": "orders.eu.>"}
        client.api(f"CONSUMER.CREATE.ORDERS.{name}", {"stream_name": "ORDERS", "config": config})
    for name in OTHERS[1:4]:
        config = {"durable_name": "archive", "ack_policy": "explicit"}
        client.api(f"CONSUMER.CREATE.{name}.archive", {"stream_name": name, "config": config})


def load(client: RawClient, window: Window, steps: int) -> None:
    """Publish with the page open, so that its lines have a shape."""
    for step in range(steps):
        wave = 20 + 18 * ((step // 3) % 4)
        for number in range(wave):
            body = b'{"id": %d, "customer": "c-%d", "items": [{"sku": "A-1", "quantity": 2}]}' % (step, number)
            client.publish(f"orders.eu.{number % 7}", body, reply="none", headers=[("Trace-Id", f"{step}-{number}")])
            if number % 3 == 0:
                client.publish(f"payments.{number}", body, reply="none")
            if number % 5 == 0:
                client.publish(f"shipments.{number}", body, reply="none")
        window.page.wait_for_timeout(500)


def test_pictures_for_the_documents(browser: Any, tmp_path: Path) -> None:
    """Not a claim of its own: what docs/dashboard.md and README.md show comes from a real cluster."""
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        with RawClient(cluster[0].address) as first:
            fill(first)
            leader = cluster.named(first.api("STREAM.INFO.ORDERS")["cluster"]["leader"])
        with RawClient(leader.address, name="shop") as client:
            photograph(browser, leader, client)


def photograph(browser: Any, leader: Server, client: RawClient) -> None:
    """Every view, with load."""
    with Window(browser, leader) as window:
        window.go("streams").see("ORDERS")
        load(client, window, STEPS)
        window.picture("dashboard-streams")
        window.page.get_by_role("link", name="Overview").click()
        load(client, window, STEPS)
        window.picture("dashboard-overview")
        for view in ("consumers", "connections", "accounts", "raft"):
            window.page.locator(f"nav a[data-view='{view}']").click()
            load(client, window, 6)
            window.picture(f"dashboard-{view}")
        window.go("stream/%24G/ORDERS").page.get_by_role("button", name="Sign in").first.click()
        window.page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        window.see("orders.eu")
        load(client, window, 20)
        window.picture("dashboard-stream")
        window.page.get_by_role("region", name="Message viewer").scroll_into_view_if_needed()
        window.run('document.querySelector("[aria-label=\\"Message viewer\\"]").scrollIntoView()')
        window.picture("dashboard-message")
        window.page.get_by_role("button", name="Edit").click()
        box = window.page.get_by_role("dialog")
        text = box.get_by_label("Configuration as JSON")
        text.fill(text.input_value().replace('"max_age": 0', '"max_age": 86400000000000'))
        box.get_by_role("button", name="Show changes").click()
        window.picture("dashboard-edit")
    with Window(browser, leader, scheme="dark") as window:
        window.go("overview").see("Nodes of the cluster")
        load(client, window, 30)
        window.picture("dashboard-dark")
    with Window(browser, leader, size=PHONE) as window:
        window.go("streams").see("ORDERS")
        load(client, window, 8)
        window.picture("dashboard-phone")
