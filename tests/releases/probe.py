"""Asks one version of jetraft what it can read: `python probe.py forms`, or `decode` with samples on its input.

It runs inside this tree and inside older ones (PYTHONPATH says which), so it imports nothing but jetraft, and only
names that the older ones have. What it prints is JSON.

A form is a way in which something is written, as a short text: kind, number or name, and fields in their order. A field
that is added, removed or renamed makes another form of it.
"""

import enum
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import msgpack

METHOD: Final = re.compile(r'^[A-Z_]+: Final = b?"([a-z]+(?:\.[a-z-]+)+)"', re.MULTILINE)
ROUTE_KIND: Final = re.compile(r"^    (ROUTE_\w+) = (\d+)$", re.MULTILINE)
MOVED: Final = {  # where a module was before there were releases
    "cluster.state.commands": "cluster.streams.commands",
    "raft.mesh.handshake": "raft.handshake",
    "raft.mesh.framing": "raft.framing",
    "raft.mesh.gossip": "raft.gossip",
    "store.frames.format": "store.format",
}
RENAMED: Final = {"Progress": "ConsumerProgress"}
WITH_MESSAGES: Final = ("raft.recovery", "cluster.calls.messages", "cluster.backup")
WITH_METHODS: Final = ("raft/recovery", "cluster/calls/messages")


def module(name: str) -> Any:
    """A module of this version, wherever it is."""
    try:
        return importlib.import_module(f"jetraft.{name}")
    except ModuleNotFoundError:
        return importlib.import_module(f"jetraft.{MOVED[name]}")


def root() -> Path:
    """The folder of the package."""
    return Path(next(iter(importlib.import_module("jetraft").__path__)))


def names(cls: type) -> str:
    """The fields of an attrs class."""
    return " ".join(field.name for field in attrs.fields(cls))


def _commands() -> Iterator[str]:
    commands, meta = module("cluster.state.commands"), module("cluster.meta.commands")
    for kind, tags in (("stream", commands.STREAM_TAGS), ("consumer", commands.CONSUMER_TAGS)):
        for tag, cls in tags.items():
            yield f"{kind} {tag} {RENAMED.get(cls.__name__, cls.__name__)}: {names(cls)}"
    for cls in meta.Command.__args__:
        yield f"meta {cls.__name__}: {names(cls)}"


def _frames() -> Iterator[str]:
    form = module("store.frames.format")
    for kind in form.Kind:
        yield f"entry {kind.value} {kind.name}"
    for name, flag in vars(form).items():
        if name.startswith("RECORD_") and name.isupper() and name not in {"RECORD_START", "RECORD_HEADER_BYTES"}:
            yield f"record flag {flag} {name.removeprefix('RECORD_')}"


def _wire() -> Iterator[str]:
    for number, cls, numbers in module("raft.wire")._TYPES:
        yield f"raft {number} {cls.__name__}: {' '.join(numbers)}".rstrip()
    for name, number in vars(module("raft.mesh.framing")).items():
        if name.startswith("CHANNEL_"):
            yield f"channel {number} {name.removeprefix('CHANNEL_')}"
    handshake, gossip = module("raft.mesh.handshake"), module("raft.mesh.gossip")
    yield f"handshake {handshake.PROTOCOL_VERSION} Hello: {names(handshake.Hello)}"
    for cls in (gossip.About, module("cluster.meta.profile").NodeProfile):  # a map: readers pass over other keys
        yield from (f"gossip {cls.__name__}.{name}" for name in names(cls).split())
    routes = root() / "api" / "plane" / "_route_record.pxd"
    for name, number in ROUTE_KIND.findall(routes.read_text(encoding="utf-8")):
        if not name.endswith(("_BYTES", "_MASK", "_SHIFT")):
            yield f"route {number} {name.removeprefix('ROUTE_')}"


def _calls() -> Iterator[str]:
    for folder in WITH_METHODS:
        for path in sorted((root() / folder).glob("*.py")):
            for method in METHOD.findall(path.read_text(encoding="utf-8")):
                yield f"call {method}"
    for name, cls in sorted(messages().items()):
        yield f"message {name}: {names(cls)}"


def messages() -> dict[str, Any]:
    """All messages of calls, by name."""
    for package in WITH_MESSAGES:
        for found in pkgutil.iter_modules([str(root() / package.replace(".", "/"))], f"jetraft.{package}."):
            importlib.import_module(found.name)
    protocols: dict[str, Any] = module("raft.mesh.messages").PROTOCOLS
    return {name: cls for name, cls in protocols.items() if cls.__module__.startswith("jetraft.")}


def _rows() -> Iterator[str]:
    assignment = module("cluster.state.assignment")
    yield f"row StreamAssignment: {names(assignment.StreamAssignment)}"
    yield f"row Former: {names(assignment.Former)}"
    yield f"row StreamTemplate: {names(module('cluster.meta.templates').StreamTemplate)}"
    table, snapshot = module("cluster.meta.table"), module("cluster.state.snapshot")
    for version in (table.SNAPSHOT_VERSION, table.VERSION_WITH_LEVEL):
        yield f"table {version}"
    yield f"snapshot {snapshot.SNAPSHOT_VERSION}: {names(snapshot.Snapshot)}"
    consumer = module("store.stream.consumer_state")
    for version in (consumer.FORMAT_VERSION, consumer.WITH_DEAD):
        yield f"consumer state {version}"


def _configs() -> Iterator[str]:
    config = module("store.model.config")
    for cls in vars(config).values():
        if getattr(cls, "__module__", "") != config.__name__ or not isinstance(cls, type):
            continue
        if attrs.has(cls) and not cls.__name__.endswith("Request"):
            yield from (f"config {cls.__name__}.{field.name}" for field in attrs.fields(cls))
        elif issubclass(cls, enum.Enum) and cls.__name__ != "ConsumerAction":  # that is of a request
            yield from (f"config {cls.__name__}={member.value}" for member in cls)


# What the versions of before the first release have in the same place.
EVER: Final = (_commands, _frames, _configs)
ALL: Final = (*EVER, _wire, _calls, _rows)


def forms(parts: tuple[Callable[[], Iterator[str]], ...] = ALL) -> list[str]:
    """All forms of this version."""
    return [form for part in parts for form in part()]


def _again_stream(body: bytes) -> bytes:
    commands = module("cluster.state.commands")
    return bytes(commands.encode_stream_command(commands.decode_stream_command(body)))


def _again_consumer(body: bytes) -> bytes:
    commands = module("cluster.state.commands")
    return bytes(commands.encode_consumer_commands(commands.decode_consumer_commands(body)))


def _again_meta(body: bytes) -> bytes:
    meta = module("cluster.meta.commands")
    return bytes(meta.encode(meta.decode(body)))


def _again_table(body: bytes) -> bytes:
    return bytes(module("cluster.meta.table").MetaTable.unpack(body).pack())


def _again_snapshot(body: bytes) -> bytes:
    return bytes(module("cluster.state.snapshot").Snapshot.decode(body).encode())


def _again_raft(payload: bytes) -> bytes:
    wire = module("raft.wire")
    (found,) = wire.decode(memoryview(payload))
    return b"".join(wire.encode(found.group_id.encode(), found.incarnation, found.message))


def _again_hello(body: bytes) -> bytes:
    return bytes(module("raft.mesh.handshake").Hello.decode(body).encode())


def _again_about(body: bytes) -> bytes:
    return bytes(module("raft.mesh.gossip").About.decode(body, "h").encode())


def _again_profile(body: bytes) -> bytes:
    found = module("cluster.meta.profile").unpack_profile(msgpack.unpackb(body))
    return bytes(msgpack.packb({"jetstream": found.pack()}))


AGAIN: Final[dict[str, Callable[[bytes], bytes]]] = {
    "stream": _again_stream,
    "consumer": _again_consumer,
    "meta": _again_meta,
    "table": _again_table,
    "snapshot": _again_snapshot,
    "raft": _again_raft,
    "hello": _again_hello,
    "about": _again_about,
    "profile": _again_profile,
}


def again(kind: str, written: bytes) -> bytes:
    """Read it, and write what was read. Raises whatever the reader raises."""
    if kind.startswith("message "):
        return bytes(messages()[kind.removeprefix("message ")].unpack(written).pack())
    return AGAIN[kind](written)


def decode(samples: list[list[str]]) -> list[str]:
    """What each sample, (kind, hexadecimal), is when it was read and written again, or why it was not read."""
    found = []
    for kind, written in samples:
        try:
            found.append(again(kind, bytes.fromhex(written)).hex())
        except Exception as error:  # noqa: BLE001  (of any reader: the test shows it)
            found.append(f"{type(error).__name__}: {error}")
    return found


if __name__ == "__main__":
    answers: dict[str, Callable[[], object]] = {
        "forms": forms,
        "ever": lambda: forms(EVER),
        "decode": lambda: decode(json.load(sys.stdin)),
        "compiled": lambda: sorted(
            name for name, found in sys.modules.items() if str(getattr(found, "__file__", "")).endswith(".so")
        ),
    }
    for word in sys.argv[1:]:
        json.dump(answers[word](), sys.stdout)
        sys.stdout.write("\n")
