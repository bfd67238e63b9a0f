"""Values of configuration files: what the reference refuses is refused, in its words, and the rest is read.

Of jetraft the file is read in this process: 60 starts would cost a minute of a processor.
"""

import subprocess
from pathlib import Path

import pytest

from jetraft.api.cli.main import options_of
from jetraft.api.config.settings import OptionsError
from tests.harness.server import command

pytestmark = [pytest.mark.reference]
TIMEOUT_S = 60
SAME_WORDS = (
    'listen: "x y"', "listen: x", 'listen: "a:b"', 'listen: "a:"', 'listen: "a:b:5"', 'listen: "nats://a:5"',
    "listen: true", "listen: 1.5", 'listen: ""', "http: x", 'https: "a:"', "websocket { listen: a }",
    "leafnodes { listen: x }", "cluster { listen: x }", 'server_name: "a b"', 'cluster { name: "a b" }',
    "cluster { routes: a }", "lame_duck_duration: 5", 'lame_duck_duration: "2s"', "lame_duck_grace_period: 5",
    'lame_duck_grace_period: "-5s"', "max_payload: 3GB", "max_control_line: 3GB", "jetstream { max_file: x }",
    'jetstream { max_mem: "5X" }', "jetstream { max_file: true }", 'jetstream { max_buffered_size: "5X" }',
    "jetstream { meta_compact: -1 }", "jetstream { meta_compact_size: -5 }", "jetstream { max_concurrent_io: 3 }",
    "ocsp: 5", "ocsp_cache: 5", "gateway: 5", "mqtt: 5", "jetstream { tpm: 5 }", "proxies { trusted: [ { key: x } ] }",
    "max_subscription_tokens: 256",
)  # fmt: skip
READ = (
    'listen: ":5"', 'listen: "[::1]:5"', "listen: 5", 'jetstream { max_file: "10G", max_mem: "" }', "gateway {}",
    "mqtt {}", "ocsp: false", "ocsp: { mode: never }", "ocsp_cache: true", "ocsp_cache { type: none }",
    "jetstream { tpm {} }", "jetstream { extension_hint: will_extend }", "cluster { port: -1, compression: s2_fast }",
    "prof_port: 0", "cluster { port: -1, compression: { mode: s2_auto, rtt_thresholds: [ 10ms ] } }",
    'lame_duck_duration: "30s"', "jetstream { max_outstanding_catchup: 1MB, meta_compact: 5 }",
)  # fmt: skip


def said_by_reference(path: Path) -> str:
    """What the reference says of a file; empty when it takes it."""
    done = subprocess.run(
        [*command("reference"), "-t", "-c", str(path)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return "" if done.returncode == 0 else done.stderr


def said_by_jetraft(path: Path) -> str:
    """The same of jetraft."""
    try:
        options_of(["-c", str(path)])
    except OptionsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("text", SAME_WORDS)
def test_what_the_reference_refuses_is_refused_in_its_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.conf"
    path.write_text(text, encoding="utf-8")
    words = said_by_jetraft(path).removeprefix(f"{path}:").partition(": ")[2]
    assert words
    assert words in said_by_reference(path)


@pytest.mark.parametrize("text", READ)
def test_what_the_reference_reads_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.conf"
    path.write_text(text, encoding="utf-8")
    assert said_by_reference(path) == ""
    assert said_by_jetraft(path) == ""
