"""nats-py as a user of the system account, as monitoring programs use it, and as any user that asks who it is."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client

from tests.clients.nats_py import connection, run
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server

if TYPE_CHECKING:
    from nats.aio.msg import Msg

CONFIG = """
accounts {
  SYS { users: [{user: sys, password: x}] }
  A { users: [{user: a, password: x, permissions: {subscribe: "_INBOX.>"}}], jetstream: enabled }
}
system_account: SYS
"""


def test_a_monitoring_program_asks_listens_and_sends_a_client_away(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        async with connection(server.url, user="sys", password="x") as system:
            told: asyncio.Queue[Msg] = asyncio.Queue()
            await system.subscribe("$SYS.ACCOUNT.A.*", cb=told.put)
            await system.flush()
            async with connection(server.url, user="a", password="x", name="app", allow_reconnect=False) as app:
                joined = json.loads((await asyncio.wait_for(told.get(), PATIENCE_S)).data)
                assert joined["client"]["name"] == "app"
                await who_am_i(app)
                rows = await ask(system, "SERVER.PING.CONNZ", {"acc": "A", "auth": True})
                assert [(row["cid"], row["authorized_user"]) for row in rows["data"]["connections"]] == [
                    (app.client_id, "a")
                ]
                kicked = await ask(system, f"SERVER.{rows['server']['id']}.KICK", {"cid": app.client_id})
                assert kicked.keys() == {"server"}
                left = json.loads((await asyncio.wait_for(told.get(), PATIENCE_S)).data)
                assert (left["reason"], left["client"]["id"]) == ("Kicked", joined["client"]["id"])

    with Server("jetraft", directory=tmp_path, config=CONFIG) as server:
        run(check, server)


async def ask(client: Client, subject: str, body: object) -> dict[str, Any]:
    answer = await client.request(f"$SYS.REQ.{subject}", json.dumps(body).encode(), timeout=PATIENCE_S)
    document: dict[str, Any] = json.loads(answer.data)
    return document


async def who_am_i(client: Client) -> None:
    answer = await ask(client, "USER.INFO", {})
    assert answer["data"] == {
        "user": "a",
        "account": "A",
        "account_name": "A",
        "permissions": {"subscribe": {"allow": ["_INBOX.>"]}},
    }
