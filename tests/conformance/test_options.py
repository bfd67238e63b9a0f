"""Options that both servers read: what clients see of them, and values that neither takes."""

import os
import subprocess
from pathlib import Path

import pytest

from jetraft.api.config import without_effect
from tests.harness.raw import Line, RawClient
from tests.harness.server import Kind, Server, command, environment

pytestmark = [pytest.mark.reference]
TIMEOUT_S = 60
CONNECTS = ({"headers": True, "no_responders": False}, {"headers": False, "no_responders": False})
DURATIONS = ("ping_interval", "write_deadline")  # of a number of seconds the reference warns, and -t refuses it
BLOCKS = {
    "{}": without_effect.AT_THE_TOP,
    "cluster {{ {} }}": without_effect.OF_CLUSTER,
    "jetstream {{ {} }}": without_effect.OF_JETSTREAM,
}
KEYS = [(block, key) for block, keys in BLOCKS.items() for key in sorted(keys)]


def without_headers(kind: Kind, directory: Path) -> list[object]:
    """What clients are told by a server that has no headers."""
    found: list[object] = []
    with Server(kind, directory=directory / kind, config="no_header_support: true\n") as server:
        for options in CONNECTS:
            with RawClient(server.address, **options) as client:
                client.send(b"SUB a 1\r\nPUB a 1\r\nx\r\n")
                events = client.settle()
                client.send(b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nab\r\n")
                events += client.settle()
                told = [event.text if isinstance(event, Line) else event.payload for event in events]
                found.append(
                    (
                        client.info.get("headers"),
                        [text for text in told if text != "PING" and not str(text).startswith("INFO")],
                        client.closed,
                    )
                )
    return found


def test_a_server_without_headers_is_one_as_the_reference_is(tmp_path: Path) -> None:
    assert without_headers("jetraft", tmp_path) == without_headers("reference", tmp_path)


def many_tokens(kind: Kind, directory: Path) -> list[str]:
    """What a client is told that subscribes to subjects of many tokens."""
    config = "max_sub_tokens: 2\n"
    with Server(kind, directory=directory / kind, config=config) as server, RawClient(server.address) as client:
        for sid, subject in enumerate(("a.b", "a.b.c", "a.>", "a.b.>", "a.b.c w", "..."), 1):
            client.send(f"SUB {subject} {sid}\r\n".encode())
        client.send(b"PUB a.b.c 1\r\nx\r\n")
        events = client.settle()
        return [event.text if isinstance(event, Line) else f"{event.subject} {event.sid}" for event in events]


def test_subscriptions_to_subjects_of_many_tokens_are_refused(tmp_path: Path) -> None:
    assert many_tokens("jetraft", tmp_path) == many_tokens("reference", tmp_path)


def takes(kind: Kind, path: Path) -> bool:
    """Whether a server takes a configuration file."""
    words = [*command(kind), "-t", "-c", str(path)]
    done = subprocess.run(
        words, env=os.environ | environment(kind), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode == 0


@pytest.mark.parametrize(("block", "key"), KEYS)
def test_a_key_without_effect_takes_what_the_reference_takes(block: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "c.conf"
    for value in ('"x y"', "{a: b}", "2", "true", "[a]"):
        path.write_text(block.format(f"{key}: {value}"), encoding="utf-8")
        if value == "2" and key in DURATIONS:
            continue
        assert not takes("jetraft", path) or takes("reference", path), value


VALUES = {
    "feature_flags: 3": "error parsing feature flags: unsupported type int64",
    "feature_flags: { a: 1 }": 'error parsing feature flag "a": expected bool, got int64',
    "feature_flags: { a: true, js_ack_fc_v2: false, js_raft_delete_range: false }": "is valid",
    "write_timeout: x": "write_timeout must be 'default', 'close' or 'retry'",
    "write_timeout: retry": "is valid",
    "leafnodes { write_timeout: x }": "write_timeout must be 'default', 'close' or 'retry'",
    'leafnodes { port: -1, write_timeout: close, write_deadline: "3s" }': "is valid",
    "proxy_protocol: true": "is valid",
}


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_what_is_wrong_with_a_value_is_said_in_the_same_words(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "c.conf"
    for text, words in VALUES.items():
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command(kind), "-t", "-c", str(path)],
            env=os.environ | environment(kind), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert words in done.stdout + done.stderr, text


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_a_start_says_which_flags_there_are(kind: Kind, tmp_path: Path) -> None:
    config = "feature_flags: { b: true, a: false, js_raft_delete_range: false, js_ack_fc_v2: false }\n"
    with Server(kind, directory=tmp_path, config=config) as server:
        lines = [server.running.wait_for_line(words) for words in ("Feature flags:", "Configured:", "Unsupported:")]
    assert [line.partition("[INF]")[2] for line in lines] == [
        "   Feature flags:",
        "     Configured:    js_ack_fc_v2 (disabled), js_raft_delete_range (opt-out)",
        "     Unsupported:   a, b",
    ]
