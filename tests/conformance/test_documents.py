"""Every page, system request and event, asked of both servers: all fields have the same names and types.

One node with a leaf node, three nodes with one, and operator mode, with accounts that share, streams of each kind and
clients that are there or have left. What differs on purpose is in meant.py. Advisories of JetStream are compared by
test_advisory_envelopes.py and test_operator_advisories.py, the end of a server by test_system_events.py.
"""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs
import pytest

from jetraft.api.monitor.pages import PATHS
from jetraft.api.monitor.questions import (
    QUERY,
    AccountzQuestion,
    ConnzQuestion,
    GatewayzQuestion,
    HealthQuestion,
    JszQuestion,
    LeafzQuestion,
    QueuesQuestion,
    RaftzQuestion,
    RoutezQuestion,
    StatzQuestion,
    SubszQuestion,
)
from jetraft.api.system.answers import ACCOUNT_PAGES, OWN_PAGES, SERVER_PAGES
from tests.conformance.documents import OF_ACCOUNT, OF_SERVER, OWN, PAGES, Question, differing, questions, typed
from tests.conformance.meant import MEANT, unexplained
from tests.conformance.sites import SITES, Site
from tests.harness.server import Kind

pytestmark = [pytest.mark.reference]
KINDS: Final[tuple[Kind, ...]] = ("reference", "jetraft")
TEXTS: Final = tuple(question.text for question in questions())
SETTLED_S: Final = 20.0  # until which answers that depend on the moment, a leader's say, are asked for again
OPTIONS: Final[Mapping[str, type]] = {
    "/connz": ConnzQuestion, "/subsz": SubszQuestion, "/routez": RoutezQuestion, "/leafz": LeafzQuestion,
    "/gatewayz": GatewayzQuestion, "/accountz": AccountzQuestion, "/accstatz": StatzQuestion, "/jsz": JszQuestion,
    "/healthz": HealthQuestion, "/raftz": RaftzQuestion, "/ipqueuesz": QueuesQuestion,
}  # fmt: skip
Found = Mapping[str, list[str]]  # differences by what was asked


def compared(question: Question, sites: list[Site], pool: ThreadPoolExecutor, deadline_s: float) -> list[str]:
    """What differs, asked again for a time where it is more than what is meant."""
    while True:
        theirs, ours = pool.map(lambda site: typed(question, site), sites)
        found = list(differing(theirs, ours))
        if not unexplained(found) or time.monotonic() > deadline_s:
            return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Found]:
    """The differences of each site."""
    return {name: of_site(name, tmp_path_factory) for name in SITES}


def of_site(name: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Start both kinds, ask both, end both."""
    made = [SITES[name](kind, tmp_path_factory.mktemp(f"{name}-{kind}")) for kind in KINDS]
    with ThreadPoolExecutor(len(KINDS)) as pool:
        opening = [pool.submit(one.__enter__) for one in made]
        try:
            sites = [one.result() for one in opening]
            deadline_s = time.monotonic() + SETTLED_S
            return {question.text: compared(question, sites, pool, deadline_s) for question in questions()}
        finally:
            for one, opened in zip(made, opening, strict=True):
                if opened.exception() is None:
                    one.__exit__(None, None, None)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("text", TEXTS)
def test_both_servers_say_it_with_the_same_fields(found: Mapping[str, Found], site: str, text: str) -> None:
    assert unexplained(found[site][text]) == []


GROUPS: Final = "/jsz?accounts=1&streams=1&consumers=1&raft=1"


def groups_of(site: Site) -> list[tuple[str, list[str], list[str]]]:
    """Of each stream on each node: its group, those that are told of its consumers, and those that these show."""
    found = []
    for node in site.nodes:
        for account in node.get(GROUPS)[1]["account_details"]:
            for stream in account.get("stream_detail", ()):
                told = {part["name"]: part["raft_group"] for part in stream.get("consumer_raft_groups") or ()}
                rows = {row["name"]: row["cluster"] for row in stream.get("consumer_detail") or ()}
                # nats-server has moments at which one of them has no group.
                shown = {name: cluster["raft_group"] for name, cluster in rows.items() if "raft_group" in cluster}
                assert shown == {name: told[name] for name in shown}, stream["name"]
                found.append((stream["stream_raft_group"], list(told.values()), list(shown)))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_tools_tell_consumers_apart_by_their_groups(kind: Kind, tmp_path: Path) -> None:
    with SITES["three"](kind, tmp_path) as site:
        found = groups_of(site)
    assert any(len(consumers) > 1 and shown for _, consumers, shown in found)
    for stream, consumers, _ in found:
        assert len({stream, *consumers}) == 1 + len(consumers)


def test_every_difference_on_the_list_is_one(found: Mapping[str, Found]) -> None:
    seen = {difference for of in found.values() for differences in of.values() for difference in differences}
    idle = [meant for meant in MEANT if not meant.at_times and not any(map(meant.explains, seen))]
    assert idle == []


def test_every_option_of_every_page_is_asked_for() -> None:
    asked: dict[str, str] = {}
    for target in PAGES.split():
        path, _, query = target.partition("?")
        asked[path] = f"{asked.get(path, '')}&{query}"
    assert PATHS.keys() <= asked.keys()
    for path, question in OPTIONS.items():
        options = {field.metadata[QUERY] for field in attrs.fields(question)} - {"", "mqtt_client"}  # which is refused
        assert {option for option in options if f"&{option}=" not in asked[path]} == set(), path


def test_every_system_request_is_made() -> None:
    assert set(SERVER_PAGES) <= {text.partition("{")[0] for text in OF_SERVER.split()}
    assert set(ACCOUNT_PAGES) <= {text.partition("{")[0] for text in OF_ACCOUNT.split()}
    assert {subject.removeprefix("$SYS.REQ.") for subject in OWN_PAGES} <= set(OWN.split())
