"""No step of a request, a message or a deadline takes longer because a client has stored much."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import pytest

from tests.harness.raw import RawClient
from tests.scaling import metered
from tests.scaling.measure import SLOW_ANSWER_S, USER, Meter, State, filled

MANY: Final = 100_000
STEP_NS_MAX: Final = 5_000_000  # of processor time; before, each of these took 8 to 100 ms for so many
TRIES: Final = 3
PIECE: Final = 2_000
TTLS_S: Final = (2, 6, 18)  # of messages that end: the first within which all are stored
NOTHING: Final = State(subjects=0, consumers=0, streams=1, accounts=0, filters=1, subscriptions=0)


@attrs.frozen
class Act:
    """A stream `name`, what is stored in it, and what is done then."""

    config: dict[str, Any]
    line: Callable[[str, int], bytes] | None  # None: messages that end when all are stored
    act: Callable[[RawClient, str], None]


def plain(name: str, at: int) -> bytes:
    return b"PUB %s.%d 1\r\nx\r\n" % (name.encode(), at)


def of_ten_subjects(name: str, at: int) -> bytes:
    return b"PUB %s.%d 1\r\nx\r\n" % (name.encode(), at % 10)


def with_ttl(ttl: bytes) -> Callable[[str, int], bytes]:
    hdr = b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % ttl

    def line(name: str, at: int) -> bytes:
        return b"HPUB %s.%d %d %d\r\n%sx\r\n" % (name.encode(), at, len(hdr), len(hdr) + 1, hdr)

    return line


def updated(**changes: Any) -> Callable[[RawClient, str], None]:
    def act(client: RawClient, name: str) -> None:
        config = {"name": name, "subjects": [f"{name}.>"], "allow_rollup_hdrs": True, **changes}
        answer = client.api(f"STREAM.UPDATE.{name}", config)
        assert "error" not in answer, answer

    return act


def purged(**asked: Any) -> Callable[[RawClient, str], None]:
    def act(client: RawClient, name: str) -> None:
        answer = client.api(f"STREAM.PURGE.{name}", asked)
        assert answer.get("success"), answer

    return act


def rolled_up(scope: str, subject: str) -> Callable[[RawClient, str], None]:
    def act(client: RawClient, name: str) -> None:
        answer = client.acknowledged(f"{name}.{subject}", b"all of it", headers=[("Nats-Rollup", scope)])
        assert "error" not in answer, answer

    return act


def published(client: RawClient, name: str) -> None:
    for _ in range(3):
        assert "error" not in client.acknowledged(f"{name}.new", b"one")


def rested(client: RawClient, name: str) -> None:
    """Until the server has done what is due."""
    for _ in range(20 * 2 * TTLS_S[-1]):
        time.sleep(0.05)
        if client.api(f"STREAM.INFO.{name}")["state"]["messages"] == 0:
            return
    raise AssertionError(name)


def purged_and_published(client: RawClient, name: str) -> None:
    purged()(client, name)
    published(client, name)


def watched(client: RawClient, name: str) -> None:
    """As a client watches a bucket, twice, and what it asks of the second consumer."""
    config = {
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "filter_subject": f"{name}.>",
        "mem_storage": True,
    }
    for at in "12":
        body = {"stream_name": name, "config": config | {"name": at, "deliver_subject": f"{name.lower()}.{at}"}}
        answer = client.api(f"CONSUMER.CREATE.{name}.{at}.{name}.>", body)
        assert answer.get("num_pending") == MANY, answer


TTLS: Final = {"allow_msg_ttl": True, "max_age": 3_600 * 10**9}
ACTS: Final = {
    "a smaller max_msgs": Act({}, plain, updated(max_msgs=10)),
    "a max_msgs of half": Act({}, plain, updated(max_msgs=MANY // 2)),
    "a smaller max_bytes": Act({}, plain, updated(max_bytes=1000)),
    "fewer messages of each subject": Act({}, of_ten_subjects, updated(max_msgs_per_subject=1)),
    "fewer bytes of each subject": Act({}, of_ten_subjects, updated(metadata={"jetraft.max_bytes_per_subject": "100"})),
    "a rollup of everything": Act({"allow_rollup_hdrs": True}, plain, rolled_up("all", "1")),
    "a rollup of a subject": Act({"allow_rollup_hdrs": True}, lambda name, _: plain(name, 1), rolled_up("sub", "1")),
    "a purge": Act({}, plain, purged()),
    "a purge of the older half": Act({}, plain, purged(seq=MANY // 2)),
    "a purge of a pattern": Act({}, plain, purged(filter="*.*")),
    "a publish beside messages that never end": Act(TTLS, with_ttl(b"never"), published),
    "messages whose ends have come": Act(TTLS, None, rested),
    "markers of messages whose ends have come": Act(
        {**TTLS, "subject_delete_marker_ttl": 1_000_000_000, "allow_rollup_hdrs": True}, None, rested
    ),
    "a watch of all subjects": Act({}, plain, watched),
    "a publish after a purge of messages with ends": Act(TTLS, with_ttl(b"1h"), purged_and_published),
}


@pytest.fixture(scope="module")
def meter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    with filled(tmp_path_factory.mktemp("state"), NOTHING) as found:
        yield found


@pytest.mark.campaign
@pytest.mark.parametrize("name", ACTS)
def test_no_step_is_longer_because_much_is_stored(meter: Meter, name: str) -> None:
    act, steps = ACTS[name], []
    for turn in range(TRIES):
        steps.append(longest(meter, f"T{list(ACTS).index(name)}x{turn}", act))
        if steps[-1].longest_ns <= STEP_NS_MAX:
            break
    least = min(steps, key=lambda one: one.longest_ns)
    assert least.longest_ns <= STEP_NS_MAX, [f"{one.longest_ns / 1e6:.1f} ms in {one.task}" for one in steps]


def longest(meter: Meter, stream: str, act: Act) -> metered.Figures:
    """The longest step while this is done."""
    with RawClient(meter.server.address, **USER) as client:
        client.settle()
        store(client, stream, act)
        meter.rest()
        meter.forget()
        act.act(client, stream)
        meter.rest()
        found = meter.figures()
        client.api(f"STREAM.DELETE.{stream}")
        meter.rest()
        return found


def store(client: RawClient, stream: str, act: Act) -> None:
    """A stream with all its messages. Those that end do so once all are stored, however slow the machine is."""
    for ttl_s in TTLS_S:
        answer = client.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], **act.config})
        assert "error" not in answer, answer
        line = act.line or with_ttl(b"%d" % ttl_s)
        for first in range(0, MANY, PIECE):
            client.send(b"".join(line(stream, at) for at in range(first, first + PIECE)))
        client.settle(SLOW_ANSWER_S)
        stored = client.api(f"STREAM.INFO.{stream}")["state"]["messages"]
        if stored == MANY:
            return
        assert act.line is None, stored
        client.api(f"STREAM.DELETE.{stream}")
    raise AssertionError(f"{MANY} messages were not stored within {TTLS_S[-1]} s")
