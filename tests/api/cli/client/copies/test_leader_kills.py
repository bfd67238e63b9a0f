"""`stream copy` while leaders die: first the source's, then the copy's. In the end both streams are equal.

The client is connected to the server that is killed as well, so its own connection ends too.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.api.cli.client.running import run
from tests.api.cli.client.test_messages import process
from tests.clients.nats_py import connection
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S, until
from tests.harness.server import Server

if TYPE_CHECKING:
    from subprocess import Popen

MESSAGES = 20_000
PAYLOAD_BYTES = 200
pytestmark = [pytest.mark.usefixtures("no_login"), pytest.mark.slow("copies 20,000 messages twice, and compares them")]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three servers with the stream SRC."""
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("here")) as cluster:
        assert run("stream", "add", "SRC", "--subjects", "src.>", "--replicas", "3", *at(cluster)).status == 0

        async def fill() -> None:
            async with connection(cluster[0].url) as client:
                for number in range(MESSAGES):
                    await client.publish(f"src.{number % 7}", str(number).encode().ljust(PAYLOAD_BYTES))
                await client.flush()

        asyncio.run(fill())
        until(lambda: info(cluster, "SRC")["state"]["messages"] == MESSAGES)
        yield cluster


def at(cluster: Cluster) -> tuple[str, str]:
    return "--server", ",".join(each.url for each in cluster if each.running.running)


def info(cluster: Cluster, stream: str) -> dict[str, Any]:
    done = run("stream", "info", stream, "--json", *at(cluster))
    found: dict[str, Any] = json.loads(done.out) if done.status == 0 else {"state": {"messages": 0}, "cluster": {}}
    return found


def leader(cluster: Cluster, stream: str) -> Server:
    """The server that leads a stream, once one does."""
    found: list[str] = []

    def is_led() -> bool:
        found[:] = [info(cluster, stream)["cluster"].get("leader", "")]
        return bool(found[0])

    until(is_led)
    return cluster.named(found[0])


def killed(cluster: Cluster, stream: str) -> Server:
    """SIGKILL for the leader of a stream, and wait until another leads."""
    lost = leader(cluster, stream)
    lost.kill()
    until(lambda: info(cluster, stream)["cluster"].get("leader") not in (None, "", lost.name))
    return lost


def back(cluster: Cluster, lost: Server) -> None:
    lost.start()
    cluster.wait_healthy()


def begun(copying: "Popen[str]", there: Cluster, name: str, beyond: int) -> None:
    """Return when the copy has more than so many messages, and is still at work."""
    until(lambda: info(there, name)["state"]["messages"] > beyond or copying.poll() is not None)
    assert copying.poll() is None, f"the copy was too fast to be disturbed, or failed: {copying.communicate()}"


def ended(copying: "Popen[str]") -> dict[str, Any]:
    out, _ = copying.communicate(timeout=2 * PATIENCE_S)
    assert copying.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_elsewhere_a_copy_outlives_the_leaders_of_both_streams(here: Cluster, tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as there:
        words = ("stream", "copy", "SRC", "DST", "--json", "--server2", ",".join(there.urls))
        copying = process(leader(here, "SRC"), *words)
        begun(copying, there, "DST", 0)
        lost = killed(here, "SRC")
        begun(copying, there, "DST", info(there, "DST")["state"]["messages"])
        killed(there, "DST")
        found = ended(copying)
        back(here, lost)
        assert (found["compared"], found["only_in_copy"]) == (MESSAGES, 0)
        assert (found["state"]["messages"], found["state"]["last_seq"]) == (MESSAGES, MESSAGES), "each exactly once"
        again = run("stream", "copy", "SRC", "DST", "--json", *at(here), "--server2", at(there)[1])
        assert json.loads(again.out)["sha256"] == found["sha256"]


def test_within_an_account_a_copy_outlives_the_leaders_of_both_streams(here: Cluster) -> None:
    """The servers copy, so it may be complete before a leader is dead: comparing goes on beside it, too."""
    copying = process(leader(here, "SRC"), "stream", "copy", "SRC", "COPY", "--json")
    until(lambda: info(here, "COPY")["state"]["messages"] > 0)
    lost = killed(here, "SRC")
    assert copying.poll() is None, copying.communicate()
    back(here, lost)
    if copying.poll() is None:
        back(here, killed(here, "COPY"))
    found = ended(copying)
    assert (found["compared"], found["same_sequences"]) == (MESSAGES, True)
    assert found["state"]["messages"] == MESSAGES
