"""What a start loads: modules of features that are not configured wait until they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jetraft.api.startup.kept_code import read
from jetraft.api.startup.trio_import import is_glibc
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.server import environment

# The server says which modules there are when it is ready, and ends.
SCRIPT = """
import os, sys
sys.argv[0] = "jetraft"
import jetraft.__main__, jetraft.api.cli.main as cli
real = cli.main
def told(*, at_ready):
    return real(at_ready=lambda: (at_ready(), print(*sys.modules, flush=True), os._exit(0)))
cli.main = told
jetraft.__main__.main()
"""
LIBRARIES = """
    argparse asyncio bcrypt cramjam crc32c cryptography email h11 html importlib.metadata nacl nats pysyncobj rich
    typer zipfile
"""
OPTIONAL = """
    jetraft.api.credentials.claims jetraft.api.credentials.tokens jetraft.api.credentials.version_1 jetraft.api.callouts
    jetraft.api.claims_service
    jetraft.api.config.file jetraft.api.leafnodes.leafnodes jetraft.api.monitor.http jetraft.api.tls.clients
    jetraft.api.tls.material jetraft.api.websocket.clients jetraft.raft.pysyncobj.engine
"""
# What pages, WebSocket and leaf nodes could do without, and loaded once: parsers of mail and cookies, archives.
OF_PAGES = "email email.utils http.cookies importlib.resources.readers zipfile"
OF_TRIO = "ctypes.util shutil tempfile bz2 lzma"  # to start another program, see import_trio
CONFIG = """
http: "127.0.0.1:-1"
websocket { host: "127.0.0.1", port: -1, no_tls: true }
leafnodes { host: "127.0.0.1", port: -1 }
"""
OF_CLUSTERS = "jetraft.api.routes jetraft.raft.mesh.peers"
MODULES_ALONE_MAX = 480  # with those of Python and of the libraries; the last: nothing that only ctypes.util needs
MODULES_OF_JETSTREAM_MAX = 768  # the last: the same
LATE = """
    jetraft.api.jetstream.handlers.streams jetraft.cluster.streams.replica.replica jetraft.cluster.consumers.core
    jetraft.store.stream.stream_store
"""
OF_JETSTREAM = "jetraft.api.jetstream.node jetraft.cluster.assembly jetraft.raft.group jetraft.store.log.file_log"


def run(cache: Path, *flags: str) -> set[str]:
    """The modules of a server that is ready."""
    words = [sys.executable, "-c", SCRIPT, "-a", HOST, "-p", "-1", *flags]
    env = os.environ | environment("jetraft") | {"PYTHONPYCACHEPREFIX": str(cache)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the starts of this module keep byte code."""
    return tmp_path_factory.mktemp("bytecode")


def test_a_server_alone_loads_nothing_of_other_features(cache: Path) -> None:
    loaded = run(cache)
    assert "jetraft.api.turns.reactor" in loaded
    assert loaded & set(f"{LIBRARIES} {OPTIONAL} {OF_CLUSTERS} {OF_JETSTREAM}".split()) == set()


def test_jetstream_loads_nothing_of_other_features(cache: Path, tmp_path: Path) -> None:
    loaded = run(cache, "-js", "-sd", str(tmp_path))
    assert set(OF_JETSTREAM.split()) <= loaded
    assert loaded & set(f"{LIBRARIES} {OPTIONAL} {OF_CLUSTERS} {LATE}".split()) == set()


def test_pages_websocket_and_leaf_nodes_load_no_parsers_of_mail_cookies_or_archives(
    cache: Path, tmp_path: Path
) -> None:
    config = tmp_path / "server.conf"
    config.write_text(CONFIG, encoding="utf-8")
    loaded = run(cache, "-js", "-sd", str(tmp_path / "store"), "-c", str(config))
    assert {"jetraft.api.monitor.http", "jetraft.api.websocket.clients", "jetraft.api.leafnodes.leafnodes"} <= loaded
    assert loaded & set(f"{OF_PAGES} {OF_TRIO}".split()) == set()


def test_a_start_loads_no_more_modules_than_it_did(cache: Path, tmp_path: Path) -> None:
    assert len(run(cache)) <= MODULES_ALONE_MAX
    assert len(run(cache, "-js", "-sd", str(tmp_path))) <= MODULES_OF_JETSTREAM_MAX


NO_OTHER_PROGRAM = """
import sys
started = []
sys.addaudithook(lambda event, about: started.append((event, about)) if event in {events} else None)
import os
from jetraft.api.startup.trio_import import import_trio
import_trio()
from trio._core import _thread_cache
print(started, _thread_cache.set_os_thread_name is None)
""".replace("{events}", "{'subprocess.Popen', 'os.fork', 'os.posix_spawn', 'os.exec'}")


@pytest.mark.skipif(not is_glibc(), reason="trio looks for another library itself")
def test_importing_trio_starts_no_other_program_and_threads_have_names(cache: Path) -> None:
    env = os.environ | environment("jetraft") | {"PYTHONPYCACHEPREFIX": str(cache)}
    words = [sys.executable, "-c", NO_OTHER_PROGRAM]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.split("\n")[0] == "[] False"


@pytest.mark.parametrize("ending", ["classes", "modules"])
def test_code_is_kept_for_the_next_start(cache: Path, ending: str) -> None:
    run(cache)
    (kept,) = cache.rglob(f"*.{ending}")
    written = kept.stat().st_mtime_ns, kept.read_bytes()
    run(cache)
    assert (kept.stat().st_mtime_ns, kept.read_bytes()) == written, "nothing was missing, so nothing was written"


@pytest.mark.parametrize("damage", ["cut off", "a bit", "empty", "of another Python"])
def test_damaged_code_of_classes_is_made_again(cache: Path, damage: str) -> None:
    run(cache)
    (kept,) = cache.rglob("*.classes")
    whole = kept.read_bytes()
    middle = len(whole) // 2
    kept.write_bytes(
        {
            "cut off": whole[:middle],
            "a bit": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "empty": b"",
            "of another Python": b"\0\0\0\0" + whole[4:],
        }[damage]
    )
    assert "jetraft.api.turns.reactor" in run(cache)
    assert read(kept).codes(), "it is whole again"


def test_a_place_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    not_a_directory = tmp_path / "file"
    not_a_directory.write_text("")
    assert "jetraft.api.turns.reactor" in run(not_a_directory)
