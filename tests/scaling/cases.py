"""What is asked of the server, at a size: made from the tables of requests, pages, headers and configurations."""

import dis
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final
from urllib.parse import quote

import attrs

from jetraft.api.jetstream.dispatch import OF_2020, OPERATIONS, PREFIX, Operation, handler_of
from jetraft.api.monitor import questions
from jetraft.api.monitor.pages import PATHS, Pages
from jetraft.api.sessions import connect
from jetraft.api.system.answers import SERVER_PAGES
from jetraft.cluster.consumers.requests import FIELDS as PULL_FIELDS
from jetraft.store.model import requests
from jetraft.store.model.config import CreateConsumerRequest, StreamConfigRequest
from jetraft.store.model.encoding.fields import FLAG, INT, TEXT, WIRE
from jetraft.store.model.encoding.jsoncodec import WireObject
from jetraft.store.model.requests import JSApiMsgGetRequest, StreamTemplateConfig
from tests.harness.raw import header_block
from tests.scaling.shapes import TEXTS, Growth, Shape, dumped, growths_of, merged, shapes_of

ROOT: Final = Path(__file__).resolve().parents[2]
LINE_BYTES_MAX: Final = 4_000  # of a control line, by default 4,096
HEADER_BYTES_MAX: Final = 60_000
HEADER: Final = re.compile(r'b"((?:Nats|Jetraft)-[A-Za-z-]*[A-Za-z])"')
BROKEN_MAX: Final = 10_000  # items, together one megabyte: the most that a message has
SYSTEM_ANSWERS: Final = "system.answers"
SYSTEM_REQUESTS_MAX: Final = 100  # of which each may be as much as a page
BURST_BYTES_MAX: Final = 4_000_000
KINDS: Final = {int: INT, str: TEXT, bool: FLAG}
WITH_HEADERS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {  # without which another one says nothing
    "Nats-Expected-Last-Subject-Sequence-Subject": (("Nats-Expected-Last-Subject-Sequence", "7"),),
    "Nats-Batch-Commit": (("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1")),
    "Nats-Batch-Sequence": (("Nats-Batch-Id", "b"),),
    "Nats-Batch-Id": (("Nats-Batch-Sequence", "1"),),
} | {f"Nats-Schedule-{word}": (("Nats-Schedule", "@every 1h"),) for word in ("Target", "Source", "TTL", "Time-Zone")}
DASHBOARD_LISTS: Final = ("/ui/streams", "/ui/stream", "/ui/consumers", "/ui/accounts", "/ui/groups")
MANY: Final = (
    "subjects)",
    "patterns",
    "equal ones",
    "names)",
    "keys)",
    "items)",
    "every list",
    "in one send",
    "tokens)",
)
OBJECTS: Final[Mapping[str, Mapping[str, Any]]] = {  # what an object of a configuration has beside the field that grows
    "mirror": {"name": "S0"},
    "republish": {"src": ">", "dest": "r.>"},
    "subject_transform": {"src": ">", "dest": "t.>"},
    "consumer_limits": {},
}
CONSUMERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {  # of which stream, and like what
    "": ("S0", {}),
    " of the last of each subject": ("S0", {"deliver_policy": "last_per_subject"}),
    " of a work queue": ("W", {"ack_policy": "explicit"}),
    " of an interest stream": ("I", {"ack_policy": "explicit"}),
}
fresh: Final = itertools.count()


@attrs.frozen
class Ask:
    """What is sent: lines of the protocol, or a page. `then` is sent when that is over, and measured as well."""

    lines: bytes = b""
    page: str = ""
    is_system: bool = False  # the lines are a user's of the system account; they are answered on SYSTEM_ANSWERS
    answers: int = 0  # messages that end it
    then: tuple[bytes, ...] = ()
    clean: tuple[bytes, ...] = ()  # sent afterwards, not measured


@attrs.frozen
class Case:
    """One way to ask for more. `make` is told the size, and an inbox; None when there is nothing of that size."""

    name: str
    make: Callable[[int, str], Ask | None]
    grows: bool = True

    @property
    def is_many(self) -> bool:
        """Whether it is about how many there are, and not about how long or great one is."""
        return not self.grows or any(word in self.name for word in MANY)


def request(subject: str, inbox: str, body: bytes, hdr: bytes = b"") -> bytes:
    """The lines of a request."""
    if hdr:
        return b"HPUB %s %s %d %d\r\n%s%s\r\n" % (
            subject.encode(), inbox.encode(), len(hdr), len(hdr) + len(body), hdr, body
        )  # fmt: skip
    return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), inbox.encode(), len(body), body)


def body_class(operation: Operation) -> type[WireObject] | None:
    """The class of the body that the handler of an operation decodes; None when it takes none."""
    seen: set[FunctionType] = set()
    found: set[type[WireObject]] = set()

    def look(function: FunctionType) -> None:
        if function in seen:
            return
        seen.add(function)
        names = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
        for named in (function.__globals__.get(name) for name in names):
            if isinstance(named, FunctionType) and named.__module__ == function.__module__:
                look(named)
            elif isinstance(named, type) and issubclass(named, WireObject) and _is_body(named):
                found.add(named)

    handler = handler_of(operation.handler)
    assert isinstance(handler, FunctionType)
    look(handler)
    assert len(found) <= 1, (operation.pattern, found)
    return next(iter(found), None)


def _is_body(cls: type) -> bool:
    return cls in (StreamConfigRequest, CreateConsumerRequest) or cls.__module__ == requests.__name__


def api_cases() -> Iterator[Case]:
    """Each field of the body of each operation, and each operation many times in one send."""
    for operation in OPERATIONS:
        pattern = operation.pattern.decode()
        cls = body_class(operation)
        if cls is CreateConsumerRequest:
            for variant, (stream, config) in CONSUMERS.items():
                if variant and pattern != "CONSUMER.CREATE.*.*":
                    continue  # one form of the request is enough for each variant
                for growth in growths_of(cls):
                    yield consumer_case(pattern, variant, stream, config, growth)
            continue
        for growth in growths_of(cls) if cls is not None else ():
            yield body_case(operation, pattern, growth)
        if cls is not None:
            yield Case(f"{pattern} (body that ends early)", broken_case(pattern, b'","', b""))
            yield Case(f"{pattern} (body that is no JSON)", broken_case(pattern, b'":[],"', b'":x}'))
        yield Case(f"{pattern} (names)", name_case(pattern))
        if operation.repeatable and cls is not StreamConfigRequest:
            yield Case(f"{pattern} (requests in one send)", many_case(pattern, b""))


def broken_case(pattern: str, item: bytes, end: bytes) -> Callable[[int, str], Ask | None]:
    """A body of up to a megabyte that is no JSON at its end."""

    def make(size: int, inbox: str) -> Ask | None:
        body = b'{"a":["' if not end else b'{"'
        body += b"".join(b"%d" % at + b"n" * 90 + item for at in range(size)) + end
        return Ask(request(subject_of(pattern, "S0"), inbox, body), answers=1) if size <= BROKEN_MAX else None

    return make


def subject_of(pattern: str, name: str) -> str:
    """The subject of an operation about this stream, or about its first consumer."""
    words = pattern.replace(">", "zz").split(".")
    names = iter([name, "c0", "x"])
    return PREFIX.decode() + ".".join(next(names) if word == "*" else word for word in words)


def stream_of(pattern: str) -> str:
    """The stream that a request is about: those that take away have one of their own."""
    if "CREATE" in pattern or "RESTORE" in pattern:
        return f"F{next(fresh)}"
    return "P" if any(word in pattern for word in ("DELETE", "PURGE", "UPDATE", "REMOVE", "EVACUATE")) else "S0"


def body_case(operation: Operation, pattern: str, growth: Growth) -> Case:
    """A field of a body."""
    cls = body_class(operation)

    def make(size: int, inbox: str) -> Ask:
        stream = stream_of(pattern)
        base: dict[str, Any] = {}
        clean: tuple[bytes, ...] = ()
        then: tuple[bytes, ...] = ()
        if cls is StreamConfigRequest:
            base = {"name": stream, "subjects": [f"{stream.lower()}.>"], "storage": "memory"}
            then = (publishes("q0.x", 50),)
            clean = (request(f"$JS.API.STREAM.DELETE.{stream}", inbox, b""),)
        elif cls is StreamTemplateConfig:
            base = {"name": stream, "config": {"subjects": [f"{stream.lower()}.>"]}, "max_streams": 1}
            clean = (request(f"$JS.API.STREAM.TEMPLATE.DELETE.{stream}", inbox, b""),)
        if growth.path and growth.path[0] == "mirror":
            base.pop("subjects", None)
        for depth, word in enumerate(growth.path[:-1]):
            if word in OBJECTS:
                base = merged(base, growth.path[: depth + 1], OBJECTS[word])
        if stream == "P":
            clean = ()
        lines = request(subject_of(pattern, stream), inbox, dumped(growth.into(base, size)))
        return Ask(lines, answers=1, then=then, clean=clean)

    return Case(f"{pattern} {growth.name}", make, growth.grows)


def consumer_case(pattern: str, variant: str, stream: str, config: Mapping[str, Any], growth: Growth) -> Case:
    """A field of a consumer's configuration."""

    def make(size: int, inbox: str) -> Ask:
        name = f"f{next(fresh)}"
        named = {"durable_name": name} if "DURABLE" in pattern else {"name": name} if "*.*" in pattern else {}
        base = {"stream_name": stream, "config": {**named, **config}}
        if pattern.endswith(">"):
            base["config"] = {"filter_subject": "zz", **named, **config}
        words = iter([stream, name])
        subject = ".".join(next(words) if word == "*" else word for word in pattern.replace(">", "zz").split("."))
        body = dumped(growth.into(base, size))
        delete = request(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", inbox, b"")
        target = {"S0": "s0.x", "W": "w.x", "I": "i.x"}[stream]
        return Ask(request(PREFIX.decode() + subject, inbox, body), answers=1, then=(publishes(target, 50), delete))

    return Case(f"{pattern}{variant} {growth.name}", make, growth.grows)


def publishes(subject: str, count: int) -> bytes:
    """So many messages in one send."""
    return b"PUB %s 1\r\nx\r\n" % subject.encode() * count


def name_case(pattern: str) -> Callable[[int, str], Ask | None]:
    """The names in the subject, longer and longer."""

    def make(size: int, inbox: str) -> Ask | None:
        subject = subject_of(pattern, "n" * size)
        return Ask(request(subject, inbox, b"{}"), answers=1) if len(subject) < LINE_BYTES_MAX else None

    return make


def many_case(pattern: str, body: bytes) -> Callable[[int, str], Ask | None]:
    """The same request many times."""

    def make(size: int, inbox: str) -> Ask | None:
        lines = request(subject_of(pattern, "S0"), inbox, body) * min(size, 1_000)
        return Ask(lines, answers=1) if size <= 1_000 else None

    return make


def get_cases() -> Iterator[Case]:
    """Direct gets, pull requests: they have no handler of the API."""
    for growth in growths_of(JSApiMsgGetRequest):
        base = {} if growth.path == ("seq",) else {"batch": 10} if growth.path == ("up_to_seq",) else {}
        yield direct_case(growth, base)
    for field in ("last_by_subj", "next_by_subj"):
        yield Case(f"DIRECT.GET.* {field} (gets of patterns in one send)", pattern_gets("DIRECT.GET.S0", field))
        yield Case(f"STREAM.MSG.GET.* {field} (gets of patterns in one send)", pattern_gets("STREAM.MSG.GET.S0", field))
    for name, kind in PULL_FIELDS.items():
        for how, shape, grows in shapes_of(KINDS[kind]):
            yield pull_case(name, how, shape, is_growing=grows)


def direct_case(growth: Growth, base: Mapping[str, Any]) -> Case:
    """A field of a direct get."""

    def make(size: int, inbox: str) -> Ask:
        return Ask(request("$JS.API.DIRECT.GET.S0", inbox, dumped(growth.into(base, size))), answers=1)

    return Case(f"DIRECT.GET.* {growth.name}", make, growth.grows)


def pattern_gets(words: str, field: str) -> Callable[[int, str], Ask | None]:
    """Gets of patterns that match nothing."""

    def make(size: int, inbox: str) -> Ask | None:
        if size > 1_000:
            return None
        bodies = (dumped({field: f"*.zz{at}"} | ({"seq": 1} if "next" in field else {})) for at in range(size))
        return Ask(b"".join(request(f"$JS.API.{words}", inbox, body) for body in bodies), answers=size)

    return make


def pull_case(name: str, how: str, shape: Shape, *, is_growing: bool) -> Case:
    """A field of a pull request."""

    def make(size: int, inbox: str) -> Ask:
        body = dumped({"no_wait": True, name: shape(size)})
        return Ask(request("$JS.API.CONSUMER.MSG.NEXT.S0.c0", inbox, body), answers=1)

    return Case(f"CONSUMER.MSG.NEXT.*.* {name} ({how})", make, is_growing)


def header_names() -> list[str]:
    """Every header that the program names."""
    found: set[str] = set()
    for folder in ("api", "cluster", "store"):
        for path in sorted((ROOT / folder).rglob("*.p[yx]*")):
            if path.suffix in {".py", ".pyx", ".pxd"}:
                found.update(HEADER.findall(path.read_text(encoding="utf-8")))
    return sorted(found)


def header_cases() -> Iterator[Case]:
    """Each header of a message: long, many times in a block, and on many messages of one send."""
    for name in header_names():
        for how, shape in {**TEXTS, "digits": lambda n: "1" * n}.items():
            yield Case(f"header {name} ({how})", header_case(name, shape, 1))
        yield Case(f"header {name} (lines)", lines_case(name))
        yield Case(f"header {name} (messages in one send)", header_case(name, lambda _: "*.zz", 0))


def header_case(name: str, shape: Shape, count: int) -> Callable[[int, str], Ask | None]:
    """A message with a header, or as many as the size says."""

    def make(size: int, inbox: str) -> Ask | None:
        hdr = header_block([*WITH_HEADERS.get(name, ()), (name, str(shape(size)))])
        lines = request("s0.1", inbox, b"x", hdr) * (count or size)
        return Ask(lines, answers=1) if len(hdr) < HEADER_BYTES_MAX and len(lines) < BURST_BYTES_MAX else None

    return make


def lines_case(name: str) -> Callable[[int, str], Ask | None]:
    """A message with a header many times."""

    def make(size: int, inbox: str) -> Ask | None:
        hdr = header_block([*WITH_HEADERS.get(name, ()), *([(name, "1")] * size)])
        return Ask(request("s0.1", inbox, b"x", hdr), answers=1) if len(hdr) < HEADER_BYTES_MAX else None

    return make


def protocol_cases() -> Iterator[Case]:
    """Fields of CONNECT, subjects of the lines of the protocol, and many lines in one send."""
    for field in (*connect.TEXT_FIELDS, *connect.BOOL_FIELDS, "protocol"):
        yield Case(f"CONNECT {field}", connect_case(field))
    for how, shape in TEXTS.items():
        for words, tail in (("SUB", " 9000"), ("PUB", " 0\r\n"), ("UNSUB", "")):
            yield Case(f"{words} ({how})", line_case(words, shape, tail))
    for line in ("CONNECT {}", "SUB denied 7", "PUB denied 0\r\n", "PING", "UNSUB 9999", "PUB nobody 0\r\n"):
        yield Case(f"{line.strip()} (lines in one send)", lines_of(line))


def connect_case(field: str) -> Callable[[int, str], Ask | None]:
    """A CONNECT with a long field."""

    def make(size: int, _inbox: str) -> Ask | None:
        value: object = "x" * size if field == "name" else None
        body = dumped({field: value}) if field == "name" else dumped({f"x{field}": "x" * size})
        return Ask(b"CONNECT %s\r\n" % body) if len(body) < LINE_BYTES_MAX else None

    return make


def line_case(words: str, shape: Shape, tail: str) -> Callable[[int, str], Ask | None]:
    """A line with a long subject, which is taken back."""

    def make(size: int, _inbox: str) -> Ask | None:
        line = f"{words} {shape(size)}{tail}\r\n".encode()
        if len(line) > LINE_BYTES_MAX or (words == "PUB" and "*" in str(shape(size))):
            return None
        return Ask(line, clean=(b"UNSUB 9000\r\n",))

    return make


def lines_of(line: str) -> Callable[[int, str], Ask | None]:
    """The same line many times."""
    return lambda size, _inbox: Ask(f"{line}\r\n".encode() * size)


def page_cases() -> Iterator[Case]:
    """Each argument of each page."""
    nobody: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(Pages) if field.init)
    kinds = Pages(**nobody).kinds
    asked = {path: kinds[name].question for path, name in PATHS.items() if name in kinds}
    asked |= {"/metrics": questions.MetricsQuestion, "/healthz": questions.HealthQuestion}
    asked |= dict.fromkeys(DASHBOARD_LISTS, questions.ListQuestion)
    for path, cls in asked.items():
        flags = []
        for field in attrs.fields(cls):
            query, how = field.metadata[questions.QUERY], field.metadata[WIRE]
            if not query:
                continue
            if how.kind == FLAG:
                flags.append(query)
            for name, shape, grows in shapes_of(how.kind):
                if name != "digits":
                    yield Case(f"{path} {query} ({name})", page_case(path, query, shape), grows)
        if flags:
            yield Case(f"{path} (every flag)", page_of_flags(path, flags), grows=False)
    yield from whole_pages(asked)


def whole_pages(paths: Iterable[str]) -> Iterator[Case]:
    """Pages as they are, those with all subscriptions, and what the system account asks for instead."""
    for path in paths:
        yield Case(path, partial(whole_page, path), grows=False)
    for words, query in (
        ("subs (detail)", "subs=detail&auth=1"),
        ("subs (1)", "subs=1"),
        ("filter_subject (of an account)", "acc=M&filter_subject=held.*.y"),
    ):
        yield Case(f"/connz {words}", partial(whole_page, f"/connz?{query}"), grows=False)
    for name in (*SERVER_PAGES, "STATSZ"):
        yield Case(f"$SYS.REQ.SERVER.PING.{name} (requests in one send)", partial(system_requests, name))


def whole_page(path: str, _size: int, _inbox: str) -> Ask:
    """A page as it is."""
    return Ask(page=path)


def system_requests(name: str, size: int, _inbox: str) -> Ask | None:
    """The same request of the system account many times, each of which is answered."""
    lines = request(f"$SYS.REQ.SERVER.PING.{name}", SYSTEM_ANSWERS, b"")
    return Ask(lines * size, answers=size, is_system=True) if size <= SYSTEM_REQUESTS_MAX else None


def page_case(path: str, query: str, shape: Shape) -> Callable[[int, str], Ask | None]:
    """A page with one argument."""

    def make(size: int, _inbox: str) -> Ask | None:
        value = shape(size)
        text = quote("1" if value is True else str(value))
        return Ask(page=f"{path}?{query}={text}") if len(text) < LINE_BYTES_MAX else None

    return make


def page_of_flags(path: str, flags: list[str]) -> Callable[[int, str], Ask | None]:
    """A page with all that can be added to it."""
    return lambda _size, _inbox: Ask(page=f"{path}?{'&'.join(f'{flag}=1' for flag in flags)}")


def all_cases() -> Iterator[Case]:
    """Everything."""
    yield from protocol_cases()
    yield from page_cases()
    yield from header_cases()
    yield from get_cases()
    yield from api_cases()


def operations_without_body() -> list[str]:
    """The operations whose handlers decode nothing."""
    return [row.pattern.decode() for row in OPERATIONS if body_class(row) is None and OF_2020 not in row.pattern]
