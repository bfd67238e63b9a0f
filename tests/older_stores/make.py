"""`python -m tests.older_stores.make NAME`: a store of this version, with what it shows, for later versions to open.

Run it when a version is about to be released, or when the form of anything on disk has changed; never replace an older
archive. With JETRAFT_SERVER_CMD another build writes the store.
"""

import argparse
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.clients.nats_py import connection, run
from tests.harness.server import Server
from tests.older_stores.content import fill, settled, shown

FOLDER: Final = Path(__file__).parent / "stores"
NODE: Final = "older"  # the name of the node: a store belongs to one
KEYS: Final = {"plain": "", "encrypted": 'jetstream {\n  key: "open sesame"\n  cipher: aes\n}\n'}


async def made(url: str) -> None:
    """Fill the store of a server."""
    async with connection(url) as client:
        await fill(client)
        await settled(client)


def make(name: str, kind: str) -> None:
    """Write `stores/NAME-KIND.tar.xz` and what it shows when it is opened again."""
    with tempfile.TemporaryDirectory() as scratch:
        server = Server("jetraft", directory=Path(scratch), name=NODE, config=KEYS[kind] or None)
        with server:
            run(made, server.url)
        with server:
            expected = observed(server)
        FOLDER.mkdir(exist_ok=True)
        with tarfile.open(FOLDER / f"{name}-{kind}.tar.xz", "w:xz") as archive:
            archive.add(server.store_dir, "store")
        shows = json.dumps(expected, indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{name}-{kind}.json").write_text(shows + "\n", encoding="utf-8")


def observed(server: Server) -> dict[str, Any]:
    """What a running server shows of its store."""
    found: dict[str, Any] = {}

    async def look() -> None:
        async with connection(server.url) as client:
            await settled(client)
            found.update(await shown(client))

    run(look)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the version or the day")
    arguments = parser.parse_args()
    for chosen in KEYS:
        make(arguments.name, chosen)
