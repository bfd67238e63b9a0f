"""Real processes: a server refuses connections until it serves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.server import environment

CONFIG = """
listen: "{host}:{client}"
websocket {{ listen: "{host}:{web}", no_tls: true }}
leafnodes {{ listen: "{host}:{leaf}" }}
jetstream {{ store_dir: "{store}" }}
"""
PROBE = """
import os, signal, socket, sys
from jetraft.api.cli import main
from jetraft.api.jetstream import assembly
from jetraft.api.logs.start_errors import StartError

ports = [int(port) for port in os.environ["PORTS"].split(",")]
build, run = assembly.open_jetstream, assembly.run_jetstream

def look(when):
    for port in ports:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            print(when, "refused", flush=True)
        else:
            print(when, "connected", flush=True)

def opened(*words):
    look("opening")
    if os.environ["REFUSES"] == "1":
        raise StartError("the store is refused")
    return build(*words)

async def running(jetstream, *, task_status):
    look("before")
    await run(jetstream, task_status=task_status)

def at_ready():
    look("ready")
    os.kill(os.getpid(), signal.SIGTERM)

assembly.open_jetstream, assembly.run_jetstream = opened, running
main.main(at_ready=at_ready)
"""


@pytest.mark.parametrize("refuses", [False, True])
def test_a_server_is_reached_when_it_serves_and_never_if_it_refuses_its_store(tmp_path: Path, *, refuses: bool) -> None:
    client, web, leaf = (free_port() for _ in range(3))
    config = tmp_path / "server.conf"
    text = CONFIG.format(host=HOST, client=client, web=web, leaf=leaf, store=tmp_path / "store")
    config.write_text(text, encoding="utf-8")
    env = {**os.environ, **environment("jetraft"), "PORTS": f"{client},{web},{leaf}", "REFUSES": str(int(refuses))}
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, "-c", str(config)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=env,
    )
    looks = ["opening refused"] * 3
    if not refuses:
        looks += ["before refused"] * 3 + ["ready connected"] * 3
    assert ended.stdout.splitlines()[: len(looks)] == looks, ended.stderr
    assert ended.returncode == int(refuses)
