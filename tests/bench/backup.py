"""How long a stream takes to be taken out and put back, here and in nats-server: `python -m tests.bench.backup`."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

MESSAGES = 500_000
CHUNK_BYTES = 1 << 16
KINDS: tuple[Kind, ...] = ("jetraft", "reference")


def fill(client: RawClient) -> None:
    """Publish, and wait until everything is stored."""
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for number in range(MESSAGES):
        client.publish(f"s.{number % 1000}", b"%d " % number * 16)
    while client.api("STREAM.INFO.S")["state"]["last_seq"] < MESSAGES:
        time.sleep(0.1)


def take(client: RawClient) -> tuple[dict[str, Any], bytes]:
    """Return the answer and the archive of a snapshot."""
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    answer = client.api("STREAM.SNAPSHOT.S", {"deliver_subject": inbox})
    chunks: list[bytes] = []
    while True:
        for message in client.messages(sid, 1):
            if message.reply:
                client.publish(message.reply)
            if not message.payload:
                return answer, b"".join(chunks)
            chunks.append(message.payload)


def put(client: RawClient, answer: dict[str, Any], archive: bytes) -> int:
    """Restore; return how many messages there are."""
    begun = client.api("STREAM.RESTORE.S", {"config": answer["config"], "state": answer["state"]})
    for at in range(0, len(archive), CHUNK_BYTES):
        client.request(begun["deliver_subject"], archive[at : at + CHUNK_BYTES])
    outcome = json.loads(client.request(begun["deliver_subject"])[0].payload)
    return int(outcome["state"]["messages"])


def main() -> None:
    """Print one line for each server."""
    for kind in KINDS:
        with (
            tempfile.TemporaryDirectory() as directory,
            Server(kind, directory=Path(directory)) as server,
            RawClient(server.address) as client,
        ):
            fill(client)
            started = time.perf_counter()
            answer, archive = take(client)
            taken = time.perf_counter()
            client.api("STREAM.DELETE.S")
            begun = time.perf_counter()
            assert put(client, answer, archive) == MESSAGES
            ended = time.perf_counter()
            sys.stdout.write(
                f"{kind}: {MESSAGES} messages, archive {len(archive) >> 20} MiB, snapshot {taken - started:.2f} s, "
                f"restore {ended - begun:.2f} s\n"
            )


if __name__ == "__main__":
    main()
