"""Signing in, reading messages and changing things in a browser, with the rights of the user."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.harness.tokens import JETSTREAM, Keys, TokenOperator
from tests.ui.browser import Window

pytestmark = pytest.mark.browser
USERS: Final = """
accounts {
  SHOP: { jetstream: enabled, users: [
    { user: owner, password: secret }
    { user: reader, password: read, permissions: {
        publish: ["$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>", "$JS.API.CONSUMER.LIST.>"]
        subscribe: "_INBOX.>" } }
  ] }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
"""
STREAM: Final = "stream/SHOP/ORDERS"
LOGIN: Final[dict[str, Any]] = {"user": "owner", "pass": "secret"}


@pytest.fixture
def server(tmp_path: Any) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path, config=USERS) as running, RawClient(running.address, **LOGIN) as client:
        config = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 1000}
        client.api("STREAM.CREATE.ORDERS", config)
        consumer = {"durable_name": "billing", "ack_policy": "explicit"}
        client.api("CONSUMER.CREATE.ORDERS.billing", {"stream_name": "ORDERS", "config": consumer})
        for number in range(10):
            body = json.dumps({"order": number, "note": "<img src=x onerror=alert(1)>"}).encode()
            client.publish(f"orders.{'eu' if number % 2 else 'us'}", body, reply="x", headers=[("Trace", f"t{number}")])
        client.request("orders.raw", bytes(range(256)))
        for seq in (4, 5, 6):
            client.api("STREAM.MSG.DELETE.ORDERS", {"seq": seq, "no_erase": True})
        yield running


def info(server: Server) -> dict[str, Any]:
    with RawClient(server.address, **LOGIN) as client:
        found: dict[str, Any] = client.api("STREAM.INFO.ORDERS")
        return found


def test_a_wrong_password_is_refused_and_the_page_goes_on(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).see("Sign in to account SHOP to read messages")
        window.sign_in("owner", "wrong")
        window.see("Authorization Violation", "dialog")
        assert window.run("document.cookie") == "", "no script reads it"
        window.page.get_by_role("button", name="Cancel").click()
        window.see("ORDERS", "h1")


def test_messages_are_read_by_sequence_subject_and_time(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).sign_in("owner", "secret")
        window.see("owner · SHOP", "header")
        messages = window.page.get_by_role("region", name="Message viewer")
        window.see("orders.raw")  # the last one, which is no text
        window.see("000000f0  f0 f1 f2", "pre")
        messages.get_by_label("Sequence", exact=True).fill("3")
        messages.get_by_role("button", name="Go to the sequence").click()
        window.see('"note": "<img src=x onerror=alert(1)>"', "pre")
        window.see("Trace")
        window.see("t2")
        messages.get_by_role("button", name="Next message").click()
        window.see('"order": 6', "pre")  # three were deleted
        messages.get_by_role("button", name="Message before").click()
        window.see('"order": 2', "pre")
        messages.get_by_label("Subject", exact=True).fill("orders.eu")
        messages.get_by_role("button", name="Last message").click()
        window.see('"order": 9', "pre")
        messages.get_by_role("button", name="First message").click()
        window.see('"order": 1', "pre")
        messages.get_by_label("Time", exact=True).fill("2020-01-01T00:00:00")
        messages.get_by_role("button", name="Go to the time").click()
        window.see('"order": 1', "pre")
        messages.get_by_role("button", name="Hex").click()
        window.see("7b 22 6f 72 64 65 72 22", "pre")
        assert window.run("document.querySelectorAll('#main img').length") == 0


def test_who_may_only_read_is_told_what_the_server_tells_a_client(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).sign_in("reader", "read")
        window.see("orders.raw")
        window.page.get_by_role("button", name="Purge").click()
        box = window.page.get_by_role("dialog")
        box.get_by_label("Type ORDERS to confirm").fill("ORDERS")
        box.get_by_role("button", name="Purge").click()
        window.see('Permissions Violation for Publish to "$JS.API.STREAM.PURGE.ORDERS"', "dialog")
        assert info(server)["state"]["messages"] == 8
        window.page.get_by_role("button", name="Cancel").click()


def test_a_purge_needs_the_name_and_takes_a_subject(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).sign_in("owner", "secret")
        window.page.get_by_role("button", name="Purge").click()
        box = window.page.get_by_role("dialog")
        assert box.get_by_role("button", name="Purge").is_disabled()
        box.get_by_label("Messages of subject").fill("orders.eu")
        box.get_by_label("Type ORDERS to confirm").fill("ORDERS")
        box.get_by_role("button", name="Purge").click()
        window.see("3 messages of ORDERS removed", "#notice")
        assert info(server)["state"]["messages"] == 5


def test_an_edit_shows_its_difference_and_notices_other_edits(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).sign_in("owner", "secret")
        window.page.get_by_role("button", name="Edit").click()
        box = window.page.get_by_role("dialog")
        text = box.get_by_label("Configuration as JSON")
        text.fill(text.input_value().replace('"max_msgs": 1000', '"max_msgs": 500'))
        box.get_by_role("button", name="Show changes").click()
        assert box.locator(".del").all_inner_texts() == ['-   "max_msgs": 1000,']
        assert box.locator(".add").all_inner_texts() == ['+   "max_msgs": 500,']
        with RawClient(server.address, **LOGIN) as client:
            client.api("STREAM.UPDATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 700})
        box.get_by_role("button", name="Apply").click()
        window.see("somebody has changed it meanwhile", "dialog")
        assert box.locator(".del").all_inner_texts() == ['-   "max_msgs": 700,']
        assert info(server)["config"]["max_msgs"] == 700
        box.get_by_role("button", name="Apply").click()
        window.see("has the new configuration", "#notice")
        assert info(server)["config"]["max_msgs"] == 500


def test_a_refused_change_is_told_and_can_be_mended(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).sign_in("owner", "secret")
        window.page.get_by_role("button", name="Edit").click()
        box = window.page.get_by_role("dialog")
        text = box.get_by_label("Configuration as JSON")
        whole = text.input_value()
        text.fill(whole[:-1])
        box.get_by_role("button", name="Show changes").click()
        window.see("JSON", "dialog .error")
        text.fill(whole.replace('"limits"', '"workqueue"', 1))
        box.get_by_role("button", name="Show changes").click()
        box.get_by_role("button", name="Apply").click()
        window.see("stream configuration update can not change retention policy", "dialog .error")
        box.get_by_role("button", name="Cancel").click()


def test_consumers_are_paused_made_and_deleted(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).sign_in("owner", "secret")
        window.page.get_by_role("row", name="billing").click()
        box = window.page.get_by_role("dialog")
        box.get_by_role("button", name="Pause").click()
        window.see("Consumer billing is paused for", "#notice")
        window.see("paused", ".t-consumers")
        window.page.get_by_role("row", name="billing").click()
        box.get_by_role("button", name="Resume").click()
        window.see("Consumer billing delivers again", "#notice")
        window.page.get_by_role("button", name="New consumer").click()
        box.get_by_role("button", name="Show changes").click()
        box.get_by_role("button", name="Apply").click()
        window.see("Consumer worker is there", "#notice")
        window.page.get_by_role("row", name="worker").click()
        box.get_by_role("button", name="Delete").click()
        box.get_by_label("Type worker to confirm").fill("worker")
        box.get_by_role("button", name="Delete").click()
        window.see("Consumer worker is deleted", "#notice")


def test_the_next_messages_of_a_consumer_are_looked_at_and_not_taken(browser: Any, server: Server) -> None:
    with RawClient(server.address, **LOGIN) as client:
        config = {"durable_name": "both", "ack_policy": "explicit", "filter_subjects": ["orders.eu", "orders.raw"]}
        client.api("CONSUMER.CREATE.ORDERS.both", {"stream_name": "ORDERS", "config": config})
        client.request("$JS.API.CONSUMER.MSG.NEXT.ORDERS.both", b"1")  # the first one, which stays unacknowledged
        before = client.api("CONSUMER.INFO.ORDERS.both")
        with Window(browser, server) as window:
            window.go(STREAM).sign_in("owner", "secret")
            window.page.get_by_role("row", name="both").click()
            peek = window.page.get_by_role("region", name="Next messages of the consumer")
            peek.get_by_role("button", name="Look at the next messages").click()
            window.see("1 message not acknowledged may come again before", "dialog")
            next_ones = peek.get_by_role("group", name="Next messages").get_by_role("button")
            assert next_ones.all_inner_texts() == ["8 orders.eu", "10 orders.eu", "11 orders.raw"]
            window.see('"order": 7', "dialog pre")
            next_ones.nth(2).click()
            window.see("000000f0  f0 f1 f2", "dialog pre")
            window.picture("dashboard-peek")
            peek.get_by_role("button", name="Look further").click()
            window.see("There is none after it", "dialog")
            assert window.run("document.querySelectorAll('dialog img').length") == 0
        after = client.api("CONSUMER.INFO.ORDERS.both")
        assert {name: after[name] for name in ("delivered", "ack_floor", "num_pending", "num_waiting")} == {
            name: before[name] for name in ("delivered", "ack_floor", "num_pending", "num_waiting")
        }


def test_who_may_not_read_messages_cannot_look_at_a_consumers_next_ones(browser: Any, tmp_path: Path) -> None:
    narrow = USERS.replace('"$JS.API.STREAM.MSG.GET.>", ', '"$JS.API.CONSUMER.INFO.>", ')
    with Server("jetraft", directory=tmp_path, config=narrow) as server, RawClient(server.address, **LOGIN) as client:
        client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        client.request("orders.eu", b"kept back")
        config = {"durable_name": "billing", "ack_policy": "explicit"}
        client.api("CONSUMER.CREATE.ORDERS.billing", {"stream_name": "ORDERS", "config": config})
        with Window(browser, server) as window:
            window.go(STREAM).sign_in("reader", "read")
            window.page.get_by_role("row", name="billing").click()
            window.page.get_by_role("button", name="Look at the next messages").click()
            window.see('Permissions Violation for Publish to "$JS.API.STREAM.MSG.GET.ORDERS"', "dialog")
            assert "kept back" not in window.page.content()


def test_a_key_signs_in_and_out_but_not_while_something_is_typed(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go("streams").see("Sign in", "header")
        window.page.keyboard.press("/")
        window.page.keyboard.type("s")
        assert window.page.get_by_label("Filter streams").input_value() == "s"
        window.page.locator(".vt-row").first.focus()
        window.page.keyboard.press("s")
        box = window.page.get_by_role("dialog")
        box.get_by_label("User").focus()
        window.page.keyboard.type("owners")
        window.page.keyboard.press("Backspace")
        window.page.keyboard.press("Tab")
        window.page.keyboard.type("secret")
        window.page.keyboard.press("Enter")
        window.see("owner · SHOP", "header")
        window.run("document.activeElement.blur()")
        window.page.keyboard.press("Control+s")
        window.see("Sign out", "header")
        window.page.keyboard.press("s")
        window.see("Sign in", "header")
        assert window.run("who.status.signed_in") is False


def test_a_stream_is_made_published_to_and_deleted(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go("streams").sign_in("owner", "secret")
        window.page.get_by_role("button", name="New stream").click()
        box = window.page.get_by_role("dialog")
        box.get_by_role("button", name="Show changes").click()
        box.get_by_role("button", name="Apply").click()
        window.see("NEW", "h1")
        window.page.get_by_role("button", name="Publish a message").click()
        box.get_by_label("Subject").fill("new.one")
        box.get_by_label("Headers").fill("Nats-Msg-Id: one\nColour: red")
        box.get_by_label("Payload").fill('{"a": [1, 2]}')
        box.get_by_role("button", name="Publish").click()
        window.see("Stored as 1 of NEW", "#notice")
        window.see("Colour")
        window.page.get_by_role("button", name="Delete", exact=True).click()
        box.get_by_label("Type NEW to confirm").fill("NEW")
        box.get_by_role("button", name="Delete").click()
        window.see("Stream NEW is deleted", "#notice")
        window.wait("location.hash === '#/streams'")


def test_advisories_come_to_who_is_signed_in(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go("events").sign_in("owner", "secret")
        window.see("owner · SHOP", "header")
        window.wait("feed.source.readyState === 1")
        with RawClient(server.address, **LOGIN) as client:
            client.api("STREAM.CREATE.MORE", {"name": "MORE", "subjects": ["more"]})
        window.see("stream action")
        window.see("stream MORE, action create")


def test_signing_out_takes_the_rights_away(browser: Any, server: Server) -> None:
    with Window(browser, server) as window:
        window.go(STREAM).sign_in("owner", "secret")
        window.see("orders.raw")
        window.page.get_by_role("button", name="Sign out").click()
        window.see("Sign in to account SHOP to read messages")
        assert window.run("document.querySelectorAll('.danger').length") == 0
        status = "fetch('ui/request', {method: 'POST', body: '{}', headers: {'Content-Type': 'application/json', "
        status += "'X-Jetraft-Dashboard': '1'}}).then((answer) => answer.status)"
        assert window.run(status) == 401


def test_a_user_of_the_system_account_sees_the_figures_of_all_nodes(browser: Any, tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=USERS) as cluster, Window(browser, cluster[0]) as window:
        window.go("overview").see("A user of the system account")
        others = "[...document.querySelectorAll('.t-nodes .vt-row')].map((row) => row.children[7].textContent)"
        assert window.run(others)[1:] == ["\N{EN DASH}", "\N{EN DASH}"]
        window.sign_in("sys", "sys")
        window.wait(f"{others}.every((text) => text.endsWith('MiB'))")
        window.wait("[...document.querySelectorAll('.t-nodes .pill')].every((pill) => pill.textContent === 'current')")


@pytest.mark.parametrize("kind", ["credentials", "seed"])
def test_a_key_signs_in_and_stays_in_the_browser(browser: Any, tmp_path: Path, kind: str) -> None:
    operator = TokenOperator()
    system, account = operator.account("SYS"), operator.account("A", limits=JETSTREAM)
    user = account.user()
    config = operator.config(system, account)
    text, name = user.creds, user.keys.public
    if kind == "seed":
        keys = Keys.new("user")
        config, text, name = f"accounts {{ A: {{ users: [ {{ nkey: {keys.public} }} ] }} }}", keys.seed, keys.public
    (tmp_path / "user.creds").write_text(text, encoding="utf-8")
    sent: list[str] = []
    with Server("jetraft", directory=tmp_path, config=config) as server, Window(browser, server) as window:
        window.page.on("request", lambda request: sent.append(request.post_data or ""))
        window.go("overview").page.get_by_role("button", name="Sign in").click()
        box = window.page.get_by_role("dialog")
        box.get_by_label("Credentials file").set_input_files(str(tmp_path / "user.creds"))
        box.get_by_role("button", name="Sign in").click()
        window.see(name, "header")
        seed = user.keys.seed if kind == "credentials" else text
        assert not any(seed in body for body in sent)
