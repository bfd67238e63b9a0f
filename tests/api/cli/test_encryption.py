"""A server with a key: what users and operators see of encryption at rest."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.clients.nats_py import connection
from tests.harness.server import Server, command, environment

pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")

SECRET = b"a secret that nobody else may read"


def config(key: str, prev_key: str = "") -> str:
    previous = f', prev_key: "{prev_key}"' if prev_key else ""
    return f'jetstream {{ cipher: aes, key: "{key}"{previous} }}'


def server(tmp_path: Path, text: str | None) -> Server:
    return Server("jetraft", directory=tmp_path, config=text)


async def publish(url: str) -> None:
    async with connection(url) as client:
        jetstream = client.jetstream()
        await jetstream.add_stream(name="S", subjects=["private.>"])
        for _ in range(20):
            await jetstream.publish("private.subject", SECRET)


async def read(url: str) -> tuple[str, bytes | None]:
    async with connection(url) as client:
        message = await client.jetstream().get_msg("S", 20)
    return message.subject or "", message.data


def on_disk(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())


def inspected(tmp_path: Path, *words: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": "/usr/bin:/bin", **environment("jetraft"), **({"STORE_KEY": key} if key else {})}
    words = (*command("jetraft"), *words, str(tmp_path / "store"))
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=variables)


def test_a_store_with_a_key_from_the_first_message_to_the_next_key(tmp_path: Path) -> None:
    with server(tmp_path, config("one")) as first:
        asyncio.run(publish(first.url))
        first.kill()
    assert SECRET not in on_disk(tmp_path)
    assert b"private.subject" not in on_disk(tmp_path)

    plain = inspected(tmp_path, "verify")
    assert (plain.returncode, plain.stdout.endswith("sound\n")) == (0, True)
    opened = inspected(tmp_path, "verify", "--key-env", "STORE_KEY", key="one")
    assert (opened.returncode, opened.stdout.endswith("sound\n")) == (0, True)
    wrong = inspected(tmp_path, "verify", "--key-env", "STORE_KEY", key="two")
    assert wrong.returncode == 1
    assert "encrypted with another key" in wrong.stdout
    assert inspected(tmp_path, "verify", "--key-env", "STORE_KEY").returncode == 2

    before = on_disk(tmp_path)
    for text, reason in [(config("two"), "is encrypted with another key"), (None, "has no key")]:
        refused = server(tmp_path, text).start(wait=False)
        assert refused.running.wait() == 1
        assert reason in refused.running.tail()
    assert on_disk(tmp_path) == before

    with server(tmp_path, config("two", "one")) as second:
        assert asyncio.run(read(second.url)) == ("private.subject", SECRET)
    with server(tmp_path, config("two")) as third:
        assert asyncio.run(read(third.url)) == ("private.subject", SECRET)
        assert "Encryption:      AES-GCM" in (tmp_path / "server.log").read_text()
