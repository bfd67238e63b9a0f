"""Write docs/compatibility.md: `python tools/gen_compatibility.py`; `--check` compares.

The page says of each API subject, monitoring page, system request, event, field of a configuration and error code
whether it is as in nats-server 2.15.1. It is made from the list of operations, the configurations, what both servers
are asked (tests/conformance: scenes, documents.py), and the differences that are meant (known.py and meant.py there).
"""

# ruff: noqa: INP001  (a script, not part of a package)

import difflib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jetraft.api.jetstream.dispatch import OF_2020, OPERATIONS, find, handler_of  # noqa: E402  (tests are beside this)
from jetraft.store.model import errors  # noqa: E402
from jetraft.store.model.config import ConsumerConfig, StreamConfig  # noqa: E402
from tests.conformance.documents import EVENTS, OF_ACCOUNT, OF_SERVER, OWN, PAGES  # noqa: E402
from tests.conformance.known import KNOWN, SHOWN, Known  # noqa: E402
from tests.conformance.meant import MEANT  # noqa: E402
from tests.conformance.scenes import SCENES  # noqa: E402
from tests.conformance.steps import Call, Publish, Until  # noqa: E402
from tests.conformance.test_advisory_envelopes import EXPECTED as ADVISORIES  # noqa: E402
from tests.conformance.test_operator_advisories import EXPECTED as OF_OPERATORS  # noqa: E402

PAGE: Final = ROOT / "docs" / "compatibility.md"
PREFIX: Final = "$JS.API."
CREATES: Final = {
    "STREAM.CREATE": "stream",
    "STREAM.UPDATE": "stream",
    "CONSUMER.CREATE": "consumer",
    "CONSUMER.DURABLE": "consumer",
}
ELSEWHERE: Final = {  # what scenes on one server do not ask for
    "SERVER.REMOVE": "tests/cluster/membership/test_members.py",
    "ACCOUNT.PURGE.*": "tests/api/jetstream/test_purged_accounts.py",
    "ACCOUNT.STREAM.MOVE.*.*": "tests/cluster/membership/test_moves.py",
    "ACCOUNT.STREAM.CANCEL_MOVE.*.*": "tests/cluster/membership/test_moves.py",
    "STREAM.PEER.EVACUATE.*": "tests/cluster/membership/test_moves.py",
    "STREAM.CANCEL_MOVE.*": "tests/cluster/membership/test_moves.py",
    **dict.fromkeys(
        (row.pattern.decode() for row in OPERATIONS if row.pattern.startswith(OF_2020)),
        "tests/api/jetstream/handlers/test_templates.py",
    ),
}
REFUSED: Final = ("CONSUMER.PEER.",)  # with an error of the catalogue, whatever is asked
USED: Final = re.compile(r"\berrors\.([A-Z][A-Z_0-9]+)")
HEAD: Final = """# Compatibility with nats-server 2.15.1

Made by `make docs` from the code and from tests/conformance; do not edit. A step is one request that both servers are
asked, their answers compared field by field (`make conformance`). What differs has its reason; what is not served is
refused by name. Keys of the configuration file are in [configuration.md](configuration.md).
"""


def steps() -> Iterator[tuple[str, str, str, Any]]:
    """(scene, step, subject below the prefix, body) of every request to the API in the scenes."""
    for scene in SCENES:
        for step in scene.steps:
            if isinstance(step, Call | Until | Publish) and step.subject.startswith(PREFIX):
                yield scene.name, step.name, step.subject.removeprefix(PREFIX), step.payload


def subjects() -> Iterator[str]:
    """A row for each operation."""
    asked: Counter[str] = Counter()
    differences: dict[str, dict[str, None]] = {}
    by_scene: dict[str, list[Known]] = {}
    for scene, step, subject, _ in steps():
        if scene not in by_scene:
            by_scene[scene] = [known for known in KNOWN if known.scene != "*" and _is_in(known, scene)]
        found = find((PREFIX + subject).encode())
        if found is None:
            continue
        pattern = found.operation.pattern.decode()
        asked[pattern] += 1
        reasons = [known.reason for known in by_scene[scene] if known.covers(scene, step, known.path)]
        differences.setdefault(pattern, {}).update(dict.fromkeys(reasons))
    for operation in OPERATIONS:
        pattern = operation.pattern.decode()
        handler = handler_of(operation.handler)
        if pattern.startswith(REFUSED):
            reason = (handler.__doc__ or "").partition(": refused, ")[2].rstrip(".")
            yield f"| `{pattern}` | refused {reason} |"
            continue
        if pattern.startswith("JETRAFT."):
            yield f"| `{pattern}` | not in nats-server: [extensions](extensions.md) |"
            continue
        what = "of 2020, with `legacy_api`" if operation.pattern.startswith(OF_2020) else "same"
        shown = f"{what}, {_tried(asked, pattern)}"
        reasons = "; ".join(differences.get(pattern, {}))
        yield f"| `{pattern}` | {shown}{'; differs in some: ' + reasons if reasons else ''} |"


def _is_in(known: Known, scene: str) -> bool:
    return known.covers(scene, known.step, known.path)


def fields() -> Iterator[tuple[str, list[str]]]:
    """The rows of each kind of configuration."""
    tried: dict[str, Counter[str]] = {"stream": Counter(), "consumer": Counter()}
    for _, _, subject, payload in steps():
        kind = CREATES.get(".".join(subject.split(".")[:2]))
        body = _object(payload)
        if kind is not None:
            tried[kind].update(list(body if kind == "stream" else _object(body.get("config"))))
    for kind, cls in (("stream", StreamConfig), ("consumer", ConsumerConfig)):
        yield kind, [f"| `{field.name}` | same, {_tried(tried[kind], field.name)} |" for field in attrs.fields(cls)]


def _tried(asked: Counter[str], name: str) -> str:
    """Where it is tried: in so many steps, or in a test of its own."""
    count = asked[name]
    return f"{count} step{'' if count == 1 else 's'}" if count else ELSEWHERE.get(name, "NOT TRIED")


def _object(payload: Any) -> dict[str, Any]:
    if isinstance(payload, bytes):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            return {}
    return payload if isinstance(payload, dict) else {}


def differences() -> Iterator[str]:
    """A row for each meant difference that no scene has."""
    for shown in SHOWN:
        link = f"[{Path(shown.where).name}]({'../' if not shown.where.startswith('docs/') else ''}"
        link += f"{shown.where.removeprefix('docs/')})"
        yield f"| {shown.what} | {shown.ours} | {shown.theirs} | {link} |"


FIELDS_HEAD: Final = """
### Fields of these that differ
All other fields have the same names and types on one server, on three, on leaf nodes and in operator mode
(tests/conformance/test_documents.py). A page is named as in requests: VARZ is `/varz` and `$SYS.REQ.SERVER.PING.VARZ`.

| Where | Field | | Why |
|---|---|---|---|
"""
SIGNS: Final = {"-": "missing", "+": "only here", "~": "another value", "*": "all of it"}
COMPARED: Final = "test_documents.py"
ADVISED: Final = "test_advisory_envelopes.py"
OF_OTHERS: Final = {  # and the test that provokes them
    "SYS.SERVER.<id>.LAMEDUCK": "test_system_events.py",
    "SYS.SERVER.<id>.SHUTDOWN": "test_system_events.py",
    "SYS.ACCOUNT.CLIENT.AUTH.ERR": "test_auth_callout.py",
    "JS.EVENT.ADVISORY.API.LIMIT_REACHED": "test_gateway.py here; not provoked on nats-server",
    "JS.EVENT.ADVISORY.SERVER.OUT_OF_STORAGE": "test_advisories.py here; not provoked on nats-server",
    "JS.EVENT.ADVISORY.SERVER.META_RESCUE": "not sent: `META.RESCUE` is not served, `jetraft recover` is",
}


def pages() -> Iterator[str]:
    """A row for each monitoring page: the options it is asked with."""
    asked: dict[str, dict[str, None]] = {}
    for target in PAGES.split():
        path, _, query = target.partition("?")
        options = [pair.partition("=")[0] for pair in query.split("&") if pair]
        asked.setdefault(path, {}).update(dict.fromkeys(options))
    for path, options in asked.items():
        yield f"| `{path}` | {' '.join(f'`{option}`' for option in options)} |"


def requests() -> Iterator[str]:
    """A row for each system request."""
    yield "| `SERVER.PING` and `SERVER.<id>` | as STATSZ |"
    of_server = dict.fromkeys(text.partition("{")[0] for text in OF_SERVER.split())
    yield from (f"| `SERVER.PING.{name}`, `SERVER.<id>.{name}` | |" for name in of_server)
    yield from (f"| `SERVER.<id>.{name}` | changes something |" for name in ("KICK", "LDM", "RELOAD"))
    of_account = dict.fromkeys(text.partition("{")[0] for text in OF_ACCOUNT.split())
    yield from (f"| `ACCOUNT.<account>.{name}` | |" for name in of_account)
    yield from (f"| `{subject}` | of every account, about itself |" for subject in OWN.split())


def events() -> Iterator[str]:
    """A row for each event and advisory."""
    told = [subject.replace(".B", ".<account>").replace(".ID", ".<id>") for subject in EVENTS]
    yield from (f"| `$SYS.{subject}` | {COMPARED} |" for subject in told)
    kinds = dict.fromkeys((*ADVISORIES, *(kind for _, kind in OF_OPERATORS)))
    named = (re.sub(r"\.(S|R)\b", ".<stream>", re.sub(r"\.[dg]$", ".<consumer>", kind)) for kind in kinds)
    yield from (f"| `$JS.EVENT.{kind}` | {ADVISED} |" for kind in dict.fromkeys(named))
    yield from (f"| `${subject}` | {test} |" for subject, test in OF_OTHERS.items())


def other_fields() -> Iterator[str]:
    """A row for each meant difference of a page, an answer or an event."""
    for meant in MEANT:
        where = "every answer" if meant.where == "*" else meant.where.replace("EVENT.*", "events")
        sign, field = meant.path[0], meant.path[1:] if meant.path != "*" else ""
        at_times = " (at times)" if meant.at_times else ""
        yield f"| {where} | {f'`{field}`' if field else ''} | {SIGNS[sign]}{at_times} | {meant.reason} |"


def codes() -> Iterator[str]:
    """A row for each error of the catalogue."""
    used = set(_names_used())
    for spec in sorted(errors.BY_ERR_CODE.values(), key=lambda spec: spec.err_code):
        status = "answered" if spec.name in used else "never answered"
        yield f"| {spec.err_code} | {spec.code} | {spec.description.replace('|', '/')} | {status} |"


def _names_used() -> Iterator[str]:
    for folder in ("api", "cluster", "raft", "store"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "errors.py":
                continue
            yield from USED.findall(path.read_text(encoding="utf-8"))


def page() -> str:
    """The text of the page."""
    parts = [
        HEAD,
        "\n## Subjects of the API, below `$JS.API.`\n| Subject | |\n|---|---|\n",
        "\n".join(subjects()),
        "\n",
    ]
    parts += [
        "\n## Monitoring pages\n| Page | Options that both servers are asked with |\n|---|---|\n",
        "\n".join(pages()),
    ]
    parts += ["\n\n## Requests, below `$SYS.REQ.`\n| Request | |\n|---|---|\n", "\n".join(requests())]
    head = "\n\n## Events and advisories\n| Subject | Provoked by |\n|---|---|\n"
    parts += [head, "\n".join(events()), "\n", FIELDS_HEAD]
    parts += ["\n".join(other_fields()), "\n"]
    head = "\n## Other differences\n| What | Here | nats-server | Where |\n|---|---|---|---|\n"
    parts += [head, "\n".join(differences()), "\n"]
    for kind, rows in fields():
        parts += [f"\n## Fields of a {kind}\n| Field | |\n|---|---|\n", "\n".join(rows), "\n"]
    parts += ["\n## Errors\n| Code | HTTP | Text | |\n|---|---|---|---|\n", "\n".join(codes()), "\n"]
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or say how it differs."""
    wanted = page()
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if arguments == ["--check"]:
        sys.stdout.writelines(
            difflib.unified_diff(found.splitlines(keepends=True), wanted.splitlines(keepends=True), "found", "wanted")
        )
        return int(found != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
