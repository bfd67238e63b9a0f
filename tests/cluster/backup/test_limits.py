"""A restored stream has no more than its account may have."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.backup.test_over_the_wire import put, take
from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG = """
accounts {
  A { users [{user: a, password: x}], jetstream: enabled }
  L { users [{user: l, password: x}], jetstream: {max_file: 200000, max_mem: 100000, max_consumers: 1} }
}
"""
MESSAGE_BYTES = 50_000


def as_user(server: Server, user: str) -> RawClient:
    return RawClient(server.address, **{"user": user, "pass": "x"})  # type: ignore[arg-type]  # fields of CONNECT


@pytest.mark.parametrize(
    ("storage", "messages", "err_code"),
    [("file", 3, None), ("file", 5, 10047), ("memory", 1, None), ("memory", 3, 10028)],
)
def test_a_restore_keeps_to_the_accounts_limits(
    tmp_path: Path, storage: str, messages: int, err_code: int | None
) -> None:
    with Server("jetraft", directory=tmp_path, config=CONFIG) as server:
        with as_user(server, "a") as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": storage})
            for _ in range(messages):
                client.acknowledged("s.x", os.urandom(MESSAGE_BYTES))
            backup = take(client)
        with as_user(server, "l") as client:
            answer: dict[str, Any] = put(client, backup)
            assert answer.get("error", {}).get("err_code") == err_code, answer
            assert client.api("INFO")["streams"] == (err_code is None)


@pytest.mark.parametrize(("consumers", "is_taken"), [(1, True), (2, False)])
def test_a_restore_keeps_to_the_accounts_number_of_consumers(tmp_path: Path, consumers: int, *, is_taken: bool) -> None:
    with Server("jetraft", directory=tmp_path, config=CONFIG) as server:
        with as_user(server, "a") as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            for number in range(consumers):
                config = {"name": f"c{number}", "durable_name": f"c{number}", "ack_policy": "explicit"}
                client.api(f"CONSUMER.CREATE.S.c{number}", {"stream_name": "S", "config": config})
            backup = take(client)
        with as_user(server, "l") as client:
            answer: dict[str, Any] = put(client, backup)
            assert client.api("INFO")["streams"] == is_taken
            if not is_taken:
                assert answer["error"]["err_code"] == 10062
                assert answer["error"]["description"].endswith("maximum consumers limit reached (10026)")
