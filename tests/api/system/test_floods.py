"""More requests than may wait are refused, each with an answer, and the server goes on."""

import json
from pathlib import Path
from typing import Any

from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG = """
accounts { SYS { users: [{user: sys, password: x}] }, A { users: [{user: a, password: x}] } }
system_account: SYS
"""
COUNT = 500


def test_every_request_of_a_flood_is_answered(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=CONFIG) as server:
        logins: list[dict[str, Any]] = [{"user": user, "pass": "x"} for user in ("a", "sys")]
        with RawClient(server.address, **logins[0]) as client, RawClient(server.address, **logins[1]) as system:
            sid = client.subscribe("i")
            client.settle()
            client.send(b"PUB $SYS.REQ.USER.INFO i 0\r\n\r\n" * COUNT)
            found = [json.loads(message.payload) for message in client.messages(sid, COUNT)]
            assert len(found) == COUNT
            refused = [answer["error"] for answer in found if "error" in answer]
            assert refused
            assert refused[0] == {"code": 429, "description": "too many requests"}
            assert "data" in found[-1] or "data" in json.loads(client.request("$SYS.REQ.USER.INFO")[0].payload)
            assert json.loads(system.request("$SYS.REQ.SERVER.PING.IDZ")[0].payload)["name"] == server.name
