"""`jetraft chain verify`: what is right is right, and nothing that was altered or lost on disk is passed over."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from jetraft.api.cli.chain import DiffersError
from jetraft.api.cli.chain import verify as verify_chain
from jetraft.api.cli.chain_tree import AuditTree
from jetraft.api.cli.main import main
from jetraft.store.frames._frame import parse_header, resummed, verify
from pyspark_jetstream import wire
from pyspark_jetstream.errors import JetStreamSourceError
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.store.stream import naive_merkle as naive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHAINED: Final = {
    "name": "S",
    "subjects": ["s.>"],
    "deny_delete": True,
    "deny_purge": True,
    "metadata": {"jetraft.chain": "sha256"},
}
MESSAGES: Final = 1500  # more than a chunk of the tree
CHECKPOINT_BYTES: Final = 24 << 10  # of each message: then there is a checkpoint behind the first chunk


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path / "store") as running:
        yield running


def fill(server: Server, messages: int = MESSAGES, *, padding: bytes = b"") -> dict[str, Any]:
    """A chained stream with messages; its head."""
    with RawClient(server.address) as client:
        assert "error" not in client.api("STREAM.CREATE.S", CHAINED)
        for number in range(1, messages):
            headers = [("Number", str(number))] if number % 3 == 0 else []
            client.publish(f"s.{number % 5}", b"message %04d" % number + padding, headers=headers)
        assert client.acknowledged("s.last", b"the last one")["seq"] == messages
        return client.api("JETRAFT.CHAIN.HEAD.S")


def run(server: Server, *words: str, stream: str = "S") -> tuple[int, str, str]:
    """Exit status, and what is printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["chain", "verify", stream, "--servers", server.url, *words])
    return status, out.getvalue(), err.getvalue()


def block_of(server: Server, text: bytes) -> Path:
    return next(path for path in server.directory.rglob("*.blk") if text in path.read_bytes())


def alter(server: Server, old: bytes, new: bytes) -> None:
    """Change a message in its block, with checksums that are right again: of a server that is stopped."""
    path = block_of(server, old)
    data = path.read_bytes()
    at = data.index(old)
    start = next(place for place in range(at, 0, -1) if verify(data, place))
    end = start + parse_header(data, start).length
    frame = resummed(data[start:end].replace(old, new))
    path.write_bytes(data[:start] + frame + data[end:])


def rot(server: Server, text: bytes) -> None:
    """Flip a bit of a message: of a server that is stopped."""
    path = block_of(server, text)
    data = bytearray(path.read_bytes())
    data[data.index(text) + len(text) - 1] ^= 1
    path.write_bytes(data)


def test_a_sound_stream_is_ok_and_its_head_is_kept(server: Server, tmp_path: Path) -> None:
    kept = tmp_path / "heads.jsonl"
    head = fill(server)
    text = f"OK S: sequences 1 to {MESSAGES}, size {MESSAGES}, head {head['head']}, earlier heads that are right: "
    for known in (0, 1):
        assert run(server, "--file", str(kept)) == (0, f"{text}{known}\n", "")
    assert json.loads(kept.read_text()) == {"stream": "S", "size": MESSAGES, "head": head["head"]}
    server.kill()
    server.start()
    assert run(server, "--file", str(kept)) == (0, f"{text}1\n", "")


def test_an_empty_stream_and_one_that_begins_later_are_ok(server: Server) -> None:
    with RawClient(server.address) as client:
        client.api("STREAM.CREATE.S", {**CHAINED, "first_seq": 1000})
        assert run(server)[0] == 0
        assert client.acknowledged("s.a", b"one")["seq"] == 1000
    status, out, _ = run(server)
    assert (status, out.partition(", head")[0]) == (0, "OK S: sequences 1000 to 1000, size 2")


def test_a_message_that_was_altered_below_the_server_is_found(server: Server, tmp_path: Path) -> None:
    head = fill(server)
    kept = tmp_path / "heads.jsonl"
    kept.write_text(json.dumps({"size": MESSAGES, "head": head["head"]}))
    server.kill()
    alter(server, b"message 0700", b"massage 0700")
    server.start()
    status, out, _ = run(server, "--file", str(kept))
    assert (status, out.partition(":")[0]) == (1, "DIFFERS S")
    assert head["head"] in out
    assert kept.read_text() == json.dumps({"size": MESSAGES, "head": head["head"]}), "nothing is added"


def test_what_differs_from_the_head_of_a_checkpoint_is_found_without_a_file(server: Server) -> None:
    head = fill(server, padding=b"." * CHECKPOINT_BYTES)
    server.stop()
    alter(server, b"message 0700", b"massage 0700")
    server.start()
    with RawClient(server.address) as client:
        found = client.api("JETRAFT.CHAIN.PROOF.S", {"seq": 700})
        assert client.api("JETRAFT.CHAIN.HEAD.S") == head
    assert found["error"]["description"] == "the stored messages do not give the head of the chain"
    status, out, _ = run(server)
    assert status == 1
    assert out.endswith("leaves 1 to 1024 are not what they were\n")


def test_a_message_that_rotted_is_missing_and_never_papered_over(server: Server) -> None:
    fill(server)
    server.kill()
    rot(server, b"message 0700")
    server.start()
    status, out, _ = run(server)
    assert (status, out) == (1, "DIFFERS S: sequences 700 to 700 are missing\n")
    with RawClient(server.address) as client:
        assert client.api("JETRAFT.CHAIN.HEAD.S")["lost"] == 1


def test_a_head_that_is_none_of_the_stream_is_named(server: Server) -> None:
    fill(server, 10)
    status, out, _ = run(server, "--size", "11", "--head", "0" * 64)
    assert (status, out) == (1, "DIFFERS S: --head has a head of size 11, and the stream has 10\n")
    status, out, _ = run(server, "--size", "5", "--head", "0" * 64)
    assert status == 1
    assert out.startswith(f"DIFFERS S: the head of size 5 is {'0' * 64} in --head, and ")
    assert not out.endswith("what they were\n"), "the server's heads are not what differs"
    with RawClient(server.address) as client:
        assert client.api("STREAM.INFO.S")["state"]["consumer_count"] == 0, "it leaves none behind"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--size", "5"], "--head and --size belong together"),
        (["--size", "5", "--head", "abc"], "--head: a head is a size and 64 hexadecimal digits"),
    ],
)
def test_a_wrong_command_line_is_refused(server: Server, words: list[str], text: str) -> None:
    assert run(server, *words) == (2, "", f"jetraft chain: {text}\n")


def test_a_stream_without_a_chain_cannot_be_verified(server: Server) -> None:
    with RawClient(server.address) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    said = (
        "jetraft chain: JETRAFT.CHAIN.HEAD.S: the stream has no chain: it was created without jetraft.chain (10003)\n"
    )
    assert run(server) == (1, "", said)


def test_a_restored_stream_has_the_same_head(server: Server, tmp_path: Path) -> None:
    head = fill(server, 50)
    archive = [str(tmp_path / "archive"), "--servers", server.url]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["backup", *archive]) == 0
        with RawClient(server.address) as client:
            client.api("STREAM.DELETE.S")
        assert main(["restore", *archive]) == 0
    with RawClient(server.address) as client:
        assert client.api("JETRAFT.CHAIN.HEAD.S") == head
    assert run(server, "--size", "50", "--head", head["head"])[0] == 0


def test_an_auditors_tree_is_that_of_the_definition() -> None:
    tree, leaves = AuditTree(), list[bytes]()
    assert tree.head() == naive.root([])
    for seq in (*range(3, 20), *range(25, 60)):
        if seq > tree.next_seq:
            leaves.append(naive.gap(tree.next_seq, seq - 1))
            tree.add_gap(tree.next_seq, seq - 1)
        leaves.append(naive.message(seq, seq, b"s", b"", b"%d" % seq))
        tree.add(seq, seq, b"s", b"", b"%d" % seq)
        assert tree.head() == naive.root(leaves)


class LyingSession:
    """A server that says what it likes: a head, and deliveries by (sequence, time)."""

    def __init__(self, head: dict[str, object], places: list[tuple[object, object]]) -> None:
        self.head = head
        self.frames = [
            wire.Frame(verb=b"MSG", subject=b"s", reply=f"$JS.ACK.S.c.1.{seq}.1.{time}.0".encode())
            for seq, time in places
        ]

    def api(self, subject: str, _body: object = None) -> dict[str, object]:
        return self.head if subject.startswith("JETRAFT") else {"name": "c"}

    def pull(self, _stream: str, _consumer: str, _count: int) -> list[wire.Frame]:
        found, self.frames = self.frames, []
        return found


def said_of(*seqs: int) -> dict[str, object]:
    tree = AuditTree()
    for seq in seqs:
        tree.add(seq, 7, b"s", b"", b"")
    return {"size": tree.size, "head": tree.head().hex(), "first_seq": 1, "last_seq": 5}


@pytest.mark.parametrize(
    ("head", "places", "error"),
    [
        (said_of(1, 2), [(1, 7), (2, 7), (3, 7)], DiffersError),  # more than the head speaks for
        (said_of(1, 2, 3), [(1, 7), (2, 7), (2, 7)], DiffersError),
        (said_of(1, 2), [(2, 7), (1, 7)], DiffersError),
        (said_of(1), [("x", 7)], JetStreamSourceError),
        (said_of(1), [(1, -7)], JetStreamSourceError),
        (said_of(1), [(0, 7)], JetStreamSourceError),
        (said_of(1), [(1 << 70, 7)], JetStreamSourceError),
        ({**said_of(1), "last_seq": "5"}, [(1, 7)], JetStreamSourceError),
        ({**said_of(1), "first_seq": None}, [(1, 7)], JetStreamSourceError),
    ],
)
def test_what_no_honest_server_answers_is_never_ok_and_never_a_crash(
    head: dict[str, object], places: list[tuple[object, object]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        verify_chain(LyingSession(head, places), "S", [])  # type: ignore[arg-type]
