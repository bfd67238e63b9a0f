"""Who may read what a server and its commands write, with an umask that takes nothing away."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from jetraft.store.model.files.file_modes import LOG_FILE, PRIVATE_DIRECTORY, PRIVATE_FILE, SHOWN_FILE
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server, environment

WITHOUT_UMASK: Final = ["/bin/sh", "-c", 'umask 0; exec "$@"', "sh", sys.executable, "-m", "jetraft"]
SHOWN: Final = {r"server\.log$|own\.log$": LOG_FILE, r"own\.pid$|\.ports$|heads$": SHOWN_FILE}


def kept(path: Path) -> tuple[int, bool]:
    return path.stat().st_mode & 0o777, path.is_dir()


def test_what_has_messages_is_for_its_owner_and_nothing_is_writable_for_others(tmp_path: Path) -> None:
    made, own = tmp_path / "made", tmp_path / "server"
    for folder in (made, own):
        folder.mkdir(mode=0o755)
    text = f'log_file: "{made}/own.log"\npid_file: "{made}/own.pid"\nports_file_dir: "{made}"\n'
    server = Server("jetraft", directory=own, config=text, flags=("-sd", str(made / "store")))
    server.starter = WITHOUT_UMASK
    server.start(wait=False)
    try:
        log = made / "own.log"
        server.running.wait_until(lambda: log.exists() and "Server is ready" in log.read_text(), what="it is ready")
        with RawClient(server.address) as client:
            config = {"name": "S", "subjects": ["s"], "deny_delete": True, "deny_purge": True}
            assert "error" not in client.api("STREAM.CREATE.S", config | {"metadata": {"jetraft.chain": "sha256"}})
            client.acknowledged("s", b"private")
        words = ("--servers", f"nats://{server.address[0]}:{server.address[1]}")
        for command in (
            ["backup", *words, "--stream", "S", str(made / "kept" / "backups")],
            ["chain", "verify", *words, "--file", str(made / "heads"), "S"],
        ):
            done = subprocess.run(
                [*WITHOUT_UMASK, *command],
                env=environment("jetraft"),
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
            assert done.returncode == 0, done.stderr
        found = {str(path.relative_to(made)): kept(path) for path in made.rglob("*")}
    finally:
        server.close()
    assert {"own.log", "own.pid", "heads", "kept/backups/S"} <= found.keys()
    assert any(name.endswith(".ports") for name in found)
    assert sum(name.startswith("store/") for name in found) > 5
    for name, (mode, is_folder) in found.items():
        expected = next((shown for pattern, shown in SHOWN.items() if re.search(pattern, name)), None)
        expected = expected or (PRIVATE_DIRECTORY if is_folder else PRIVATE_FILE)
        assert mode == expected, f"{name}: {mode:o}, not {expected:o}"
