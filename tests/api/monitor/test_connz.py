"""/connz of a server with accounts."""

from pathlib import Path

import pytest

from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

CONFIG = "accounts { A { users [{user: a, password: x}] }, B { users [{user: b, password: x}] } }"


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_connz_shows_one_account_when_asked(tmp_path: Path, kind: Kind) -> None:
    with Server(kind, directory=tmp_path, config=CONFIG) as server:
        clients = [RawClient(server.address, **{"user": user, "pass": "x"}) for user in "aab"]  # type: ignore[arg-type]
        for client in clients:
            client.settle()
        for account, users in {"": ["a", "a", "b"], "&acc=A": ["a", "a"], "&acc=B": ["b"]}.items():
            _, page = server.get(f"/connz?auth=1{account}")
            assert [row["authorized_user"] for row in page["connections"]] == users
            assert page["num_connections"] == len(users)
        for client in clients:
            client.close()
