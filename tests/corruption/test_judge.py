"""The judge of `make corruption`, case by case: it stands outside of what it judges."""

from typing import Any

import attrs
import pytest

from tests.corruption.judge import Promise, Seen, Unavailable, judge, judge_end, judge_unwell, tracebacks
from tests.corruption.places import kinds, natural
from tests.corruption.verdicts import Finding, Verdict, worst

PROMISE = Promise(
    stream="ORDERS",
    group="S-R1F-abcdefgh",
    live={1: b"a", 2: b"b", 5: b"e"},  # 3 and 4 were removed
    last_seq=5,
    consumer="reader",
    floor=2,
)
WHOLE = Seen(messages=PROMISE.live, lost=frozenset(), next_seq=6, floor=2)
WARNING = "[1] 2026/11/22 [WRN] /store/groups/S-R1F-abcdefgh.7: entries 1 to 1 are damaged"


@pytest.mark.parametrize(
    ("changes", "said", "verdict"),
    [
        ({}, [], Verdict.SAME),
        ({"messages": {1: b"a", 2: b"b"}}, [], Verdict.SILENT_LOSS),
        ({"messages": {1: b"a", 2: b"b"}}, [WARNING], Verdict.SILENT_LOSS),  # a line is not a list
        ({"messages": {1: b"a", 2: b"b"}, "lost": frozenset({4})}, [WARNING], Verdict.SILENT_LOSS),
        ({"messages": {1: b"a", 2: b"b"}, "lost": frozenset({5}), "next_seq": 9}, [WARNING], Verdict.LOST_LISTED),
        ({"messages": {1: b"a", 2: b"b"}, "lost": frozenset({5}), "next_seq": 9}, [], Verdict.NO_REASON),
        (
            {"messages": {1: b"a", 2: b"b"}, "lost": frozenset({5}), "next_seq": 9},
            ["healthz: JetStream stream '$G > OTHER' could not be recovered"],
            Verdict.LOST_LISTED,
        ),
        ({"messages": {1: b"a", 2: b"x", 5: b"e"}}, [], Verdict.WRONG_BYTES),
        ({"messages": {**PROMISE.live, 3: b"c"}}, [], Verdict.CAME_BACK),
        ({"messages": {**PROMISE.live, 3: b"c"}}, [WARNING], Verdict.SAME),
        ({"next_seq": 5}, [], Verdict.SEQUENCE_REUSED),
        ({"next_seq": 5}, [WARNING], Verdict.SEQUENCE_REUSED),
        ({"floor": 1}, [], Verdict.CONSUMER_WENT_BACK),
        ({"floor": None}, [], Verdict.CONSUMER_WENT_BACK),
        ({"floor": 1}, [WARNING], Verdict.SAME),
        ({"floor": 1}, ["[WRN] a connection was lost"], Verdict.CONSUMER_WENT_BACK),  # about something else
        ({"floor": 3}, [], Verdict.SAME),
    ],
)
def test_a_stream_that_is_served_is_compared_with_what_was_acknowledged(
    changes: dict[str, Any], said: list[str], verdict: Verdict
) -> None:
    assert judge(PROMISE, attrs.evolve(WHOLE, **changes), said).verdict is verdict


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ([], Verdict.NO_REASON),
        (["healthz: JetStream stream '$G > OTHER' has no leader"], Verdict.NO_REASON),
        (["healthz: JetStream stream '$G > ORDERS' could not be recovered"], Verdict.NO_ADVICE),
        (["healthz: JetStream stream '$G > ORDERS' is damaged: restore a backup"], Verdict.UNAVAILABLE),
        (["[ERR] S-R1F-abcdefgh: unreadable; `jetraft verify` says where"], Verdict.UNAVAILABLE),
        (["[ERR] meta: unreadable: does not start as a jetraft file"], Verdict.NO_ADVICE),
    ],
)
def test_a_stream_that_is_not_served_needs_a_reason_and_advice(said: list[str], verdict: Verdict) -> None:
    assert judge(PROMISE, Unavailable(answer="no leader"), said).verdict is verdict


def test_a_server_that_has_forgotten_a_stream_says_nothing_right() -> None:
    assert judge(PROMISE, None, [WARNING]).verdict is Verdict.EMPTY_STORE
    kept = "healthz: has data of 1 groups that belong to no known stream: S-R1F-abcdefgh; restore the store"
    assert judge(PROMISE, None, [kept]).verdict is Verdict.UNAVAILABLE


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (["[INF] Starting"], Verdict.NO_REASON),
        (["[FTL] node.json: unreadable"], Verdict.NO_ADVICE),
        (["[FTL] node.json: unreadable: restore it from a backup"], Verdict.UNAVAILABLE),
        (["Traceback (most recent call last):", "  | StoreCorrupt: x"], Verdict.TRACEBACK),
    ],
)
def test_a_server_that_ends_has_to_say_why_in_one_line(lines: list[str], verdict: Verdict) -> None:
    assert judge_end(lines, status=1).verdict is verdict


def test_a_traceback_is_named_by_its_last_error() -> None:
    found = tracebacks(["Traceback (most recent call last):", "  | jetraft.store.port.StoreCorrupt: a block", "  +---"])
    assert found == Finding(verdict=Verdict.TRACEBACK, detail="jetraft.store.port.StoreCorrupt: a block")
    assert tracebacks(["[ERR] StoreCorrupt: a block"]) is None


def test_a_member_that_stays_away_has_to_say_why() -> None:
    assert judge_unwell("n1", []).verdict is Verdict.NO_REASON
    assert judge_unwell("n1", ["[WRN] S-R3F-x: waits"]).verdict is Verdict.NO_ADVICE


def test_the_worst_of_some_findings_counts() -> None:
    findings = [Finding(verdict=verdict) for verdict in (Verdict.REPAIRED, Verdict.SILENT_LOSS, Verdict.NO_ADVICE)]
    assert worst(findings).verdict is Verdict.SILENT_LOSS
    assert worst([]).verdict is Verdict.SAME


def test_the_kind_of_a_file_is_its_name_without_numbers_and_identities() -> None:
    log = "jetstream/groups/S-R1F-x9.3/log-00000001"
    names = {
        "jetstream/node.json": "node.json",
        "jetstream/groups/meta.77/key.0": "meta/key.#",
        "jetstream/groups/S-R1F-x9.3/key.1": "stream/key.#",
        f"{log}/{1:020}-{1:08}.blk": "stream/*.blk",
        f"{log}/{9:020}-{2:08}.blk": "stream/*.blk last",
        f"{log}/{8:020}.ckpt": "stream/*.ckpt only",
        f"{log}/trimmed": "stream/trimmed",
        "ledger.12": "ledger.#",
    }
    ordered = sorted(names, key=natural)
    assert dict(zip(ordered, kinds(ordered), strict=True)) == names


def test_files_are_in_the_order_in_which_their_groups_were_created() -> None:
    names = [f"groups/{group}/a" for group in ("S-R1F-zz.9", "S-R1F-aa.10", "meta.12345678901234567890")]
    assert sorted(names, key=natural) == [names[2], names[0], names[1]]
