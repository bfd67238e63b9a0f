"""Leaf node connections that are compressed with S2: what two ends agree on, nats-server at either end, and bombs."""

import json
import secrets
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from jetraft.api.options.compression import CompressionError, agreed, wish_of
from jetraft.store.frames._frame import crc32c
from jetraft.store.s2._blocks import encode_block
from jetraft.store.s2.framing import Compressor, Decompressor
from tests.api.leafnodes.test_web import hub_config, leaf_config
from tests.harness.leafs import PAIR_IDS, PAIRS, joined, listener, real_messages, remote, wait_interest
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
MS: Final = 1_000_000
MIB: Final = 1 << 20
SIZES: Final = (0, 1, 100, 65_535, 65_536, 300_000, 1_000_000)


# -- what is agreed on


@pytest.mark.parametrize(
    ("own", "its", "mode"),
    [
        ("s2_auto", "s2_auto", "s2_auto"),
        ("s2_fast", "s2_best", "s2_fast"),
        ("s2_better", "accept", "s2_better"),
        ("accept", "accept", "off"),
        ("accept", "s2_auto", "s2_fast"),
        ("accept", "s2_best", "s2_best"),
        ("s2_fast", "off", "off"),
        ("off", "s2_fast", "off"),
        ("s2_fast", "not supported", "not supported"),
        ("s2_fast", "", "not supported"),
    ],
)
def test_each_end_uses_its_own_mode_unless_one_of_them_is_against_it(own: str, its: str, mode: str) -> None:
    assert agreed(own, its) == mode


def test_a_mode_that_nobody_knows_ends_the_connection() -> None:
    with pytest.raises(CompressionError, match='unsupported compression mode "zip"'):
        agreed("s2_fast", "zip")


def test_thresholds_are_ordered_and_zeros_leave_a_mode_out() -> None:
    assert wish_of("auto", (0, 5 * MS, 9 * MS, 0), "").rtts_ns == (0, 5 * MS, 9 * MS)
    assert wish_of("on", (), "").mode == wish_of("", (), "").mode == "s2_auto"
    for rtts_ns, text in (
        ((10 * MS, 5 * MS), "RTT threshold values X should be in ascending order"),
        ((-1, 0), 'compression mode "auto" requires at least one RTT threshold'),
        ((1, 2, 3, 4, 5), 'compression mode "auto" should have no more than 4 RTT thresholds: X'),
    ):
        with pytest.raises(CompressionError) as wrong:
            wish_of("auto", rtts_ns, "X")
        assert str(wrong.value) == text


# -- both ways, with nats-server at either end


def modes_of(*servers: Server) -> list[str]:
    """What /leafz says of the one connection of each."""
    return [server.get("/leafz")[1]["leafs"][0]["compression"] for server in servers]


def payload_of(size: int) -> bytes:
    """A half that can be made smaller, a half that cannot."""
    return (b"abcd" * size)[: size // 2] + secrets.token_bytes(size - size // 2)


UNHURRIED: Final = '{ mode: s2_auto, rtt_thresholds: ["60s"] }'  # not what a busy machine takes for a distance
CASES: Final = {
    "fast": ("s2_fast", "s2_better", ["s2_fast", "s2_better"]),
    "accept": ('{ mode: s2_auto, rtt_thresholds: ["0s", "10s"] }', "accept", ["s2_fast", "s2_fast"]),
    "auto": (UNHURRIED, UNHURRIED, ["s2_uncompressed", "s2_uncompressed"]),
}


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
@pytest.mark.parametrize("transport", ["tcp", "ws"])
@pytest.mark.parametrize("case", CASES)
def test_messages_cross_compressed(case: str, transport: str, hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    of_hub, of_leaf, modes = CASES[case]
    said = (f"compression: {of_hub}", f"compression: {of_leaf}")
    configs = {"hub_more": listener(port := free_port(), said[0]), "leaf_more": remote(port, said[1])}
    if transport == "ws":
        inside = f'leafnodes {{\nhost: "{HOST}", port: -1\n{said[0]}\n}}\n'
        web = hub_config("no_tls: true").split("\n}\n", 1)[1]
        configs = {"hub_more": inside + web, "leaf_more": leaf_config("ws", said[1])}
    with joined(hub, leaf, tmp_path, **configs) as pair, pair.clients() as (centre, edge):
        assert modes_of(pair.hub, pair.leaf) == modes
        for receiver, sender in ((centre, edge), (edge, centre)):
            sid = receiver.subscribe("big.*")
            wait_interest(sender, "big.probe")
            sent = [payload_of(size) for size in SIZES]
            for payload in sent:
                sender.publish(f"big.{len(payload)}", payload)
            assert real_messages(receiver, sid, len(sent)) == sent
            receiver.send(f"UNSUB {sid}\r\n".encode())
            wait_interest(sender, "big.probe", wanted=False)


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_messages_that_websocket_compresses_are_not_compressed_twice(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    more = "ws_compression: true\ncompression: s2_fast"
    configs = {"hub_more": hub_config("no_tls: true\ncompression: true"), "leaf_more": leaf_config("ws", more)}
    with joined(hub, leaf, tmp_path, **configs) as pair, pair.clients():
        assert modes_of(pair.hub, pair.leaf) == ["off", "off"]


def test_a_reload_makes_both_ends_agree_again(tmp_path: Path) -> None:
    port = free_port()
    configs = {"hub_more": listener(port, "compression: s2_fast"), "leaf_more": remote(port)}
    with joined("jetraft", "jetraft", tmp_path, **configs) as pair:
        with pair.clients():
            assert modes_of(pair.hub) == ["s2_fast"]
        path = pair.hub.directory / "server.conf"
        named = f"server_name: hub\n{path.read_text(encoding='utf-8').replace('s2_fast', 's2_best')}"
        path.write_text(named, encoding="utf-8")
        pair.hub.running.signal(1)
        pair.hub.running.wait_for_line("Reloaded: LeafNode compression settings")
        with pair.clients():
            assert modes_of(pair.hub) == ["s2_best"]


# -- what a stranger sends


class PackedLeaf(ExitStack):
    """A leaf node that speaks S2 by hand."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.sock = self.enter_context(socket.create_connection((HOST, port), PATIENCE_S))
        self.lines = self.enter_context(self.sock.makefile("rb"))
        assert json.loads(self.lines.readline()[5:])["compression"] == "s2_fast"
        self.compressor, self.plain = Compressor(), b""
        self.decompressor = Decompressor()
        self.sock.sendall(b'INFO {"compression":"s2_fast"} \r\n')
        assert self.until(b"\r\n").startswith(b"INFO ")

    def until(self, end: bytes) -> bytes:
        """What comes, up to this; less when the server closes."""
        while end not in self.plain:
            data = self.sock.recv(1 << 16)
            if not data:
                return self.plain
            for block in self.decompressor.add(data):
                self.plain += block
        found, _, self.plain = self.plain.partition(end)
        return found + end

    def say(self, data: bytes) -> None:
        self.sock.sendall(self.packed(data))

    def packed(self, data: bytes) -> bytes:
        return self.compressor.add(data) + self.compressor.flush()

    def be_admitted(self) -> None:
        self.say(b'CONNECT {"name":"n"}\r\nPING\r\n')
        assert self.until(b"PONG\r\n")

    def is_closed(self) -> bool:
        """Whether the server ends the connection; a TimeoutError when it does not."""
        with suppress(ConnectionError):
            while self.sock.recv(1 << 16):
                pass
        return True


def chunk(data: bytes, *, kind: int = 0, crc: int | None = None) -> bytes:
    """A compressed chunk, or what looks like one."""
    found = crc32c(data)
    masked = (((found >> 15) | (found << 17)) + 0xA282EAD8) & 0xFFFFFFFF if crc is None else crc
    body = struct.pack("<I", masked) + (encode_block(data) if kind == 0 else data)
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


NAME: Final = b"\xff\x06\x00\x00S2sTwO"
WRONG: Final[dict[str, bytes]] = {
    "a checksum": NAME + chunk(b"PING\r\n", crc=1),
    "no name": chunk(b"PING\r\n"),
    "another name": b"\xff\x06\x00\x00S3sTwO",
    "a reserved kind": NAME + b"\x02\x00\x00\x00",
    "a chunk without a checksum": NAME + b"\x00\x02\x00\x00ab",
    "a chunk that is too long": NAME + b"\x00\xff\xff\xff",
    "a bomb of somebody without a name": NAME + chunk(b"+OK\r\n" * 20_000),
    "the head of a large block of somebody without a name": NAME + b"\x00" + (1 << 20).to_bytes(3, "little"),
    "a bomb that states its size only": NAME + b"\x00\x0a\x00\x00" + bytes(4) + b"\xff\xff\xff\x7f" + b"ab",
    "a copy from before the block": NAME + b"\x00\x08\x00\x00" + bytes(4) + b"\x08\x05\x10\x10",
    "bytes in the clear": b"PING\r\n",
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Any:
    port = free_port()
    directory = tmp_path_factory.mktemp("packed")
    patient = f"compression: s2_fast, authorization {{ timeout: {2 * PATIENCE_S} }}"  # so nobody is late in a test
    with Server("jetraft", directory=directory, config=listener(port, patient)) as server:
        yield server, port


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_stream_ends_the_connection(wrong: str, hub: tuple[Server, int]) -> None:
    with PackedLeaf(hub[1]) as leaf:
        leaf.sock.sendall(WRONG[wrong])
        assert leaf.is_closed()


def test_lines_in_the_clear_behind_the_choice_end_the_connection(hub: tuple[Server, int]) -> None:
    with socket.create_connection((HOST, hub[1]), PATIENCE_S) as sock, sock.makefile("rb") as lines:
        lines.readline()
        sock.sendall(b'INFO {"compression":"s2_fast"} \r\nCONNECT {"name":"n"}\r\n')
        assert b"CONNECT" not in lines.read()


def test_a_stream_may_come_byte_by_byte_with_chunks_that_are_passed_over(hub: tuple[Server, int]) -> None:
    with PackedLeaf(hub[1]) as leaf:
        data = leaf.packed(b'CONNECT {"name":"n"}\r\n') + b"\xfe\x03\x00\x00abc\x80\x00\x00\x00"
        data += chunk(b"PING\r\n", kind=1)
        for place in range(len(data)):
            leaf.sock.sendall(data[place : place + 1])
        assert leaf.until(b"PONG\r\n").endswith(b"PONG\r\n")


def test_a_bomb_takes_many_turns_and_a_block_of_memory(hub: tuple[Server, int]) -> None:
    server, port = hub
    message = b"LMSG x %d\r\n%s\r\n" % (MIB - 32, bytes(MIB - 32))
    bomb = (chunk(message[:MIB]) + chunk(message[MIB:])) if len(message) > MIB else chunk(message)
    with PackedLeaf(port) as leaf:
        leaf.be_admitted()
        before = server.rss_bytes()
        leaf.sock.sendall(bomb * 200 + chunk(b"PING\r\n"))
        assert leaf.until(b"PONG\r\n").endswith(b"PONG\r\n"), "all of it is read"
        assert len(bomb) * 20 < len(message)
        assert server.rss_bytes() - before < 32 * MIB
