"""What accounts share changes while clients are connected: in force at once, and the rest is not interrupted."""

import attrs
import pytest

from jetraft.api.exchange.values import (
    ClientLimits,
    Destination,
    Export,
    Import,
    Mapping,
    ServiceResponseType,
    Sharing,
    SharingKind,
)
from tests.api.plane.test_accounts import client, make_plane
from tests.api.plane.test_sharing import received
from tests.api.plane.test_sharing_rules import Pair, shared

STREAM, SERVICE = SharingKind.STREAM, SharingKind.SERVICE
NOTHING: dict[str, Sharing] = {"A": Sharing(), "B": Sharing()}


def started(sharing: dict[str, Sharing]) -> Pair:
    pair = Pair()
    pair.start(sharing)
    return pair


def subjects(pair: Pair, cid: int) -> list[str]:
    return [got.subject for got in received(pair.plane, cid)]


def test_a_subscription_gets_a_stream_that_is_imported_later_and_loses_it() -> None:
    pair = started(NOTHING)
    plane, exporter = pair.plane, pair.plane.account("A")
    plane.feed(pair.requester, b"SUB > q 2\r\nUNSUB 1\r\n")
    assert not plane.has_interest(exporter, b"e")
    for sharing, expected in ((shared(), ["e"]), (NOTHING, []), (shared(), ["e"]), ({}, [])):
        pair.held.follow(sharing)
        assert plane.has_interest(exporter, b"e") == bool(expected)
        plane.feed(pair.responder, b"PUB e 0\r\n\r\n")
        assert subjects(pair, pair.requester) == expected
        plane.flush()


def test_an_import_that_ends_leaves_the_shadows_of_others() -> None:
    both = tuple(Import(kind=STREAM, account="A", subject="e", prefix=prefix) for prefix in ("x", "y"))
    exports = (Export(kind=STREAM, subject="e"),)
    pair = started({"A": Sharing(exports=exports), "B": Sharing(imports=both)})
    pair.plane.feed(pair.requester, b"SUB *.e 2\r\n")
    for imports, expected in ((both, ["x.e", "y.e"]), (both[1:], ["y.e"]), (both[:1], ["x.e"]), ((), [])):
        pair.held.follow({"A": Sharing(exports=exports), "B": Sharing(imports=imports)})
        pair.plane.flush()
        pair.plane.feed(pair.responder, b"PUB e 0\r\n\r\n")
        assert sorted(subjects(pair, pair.requester)) == expected
    pair.plane.feed(pair.requester, b"UNSUB 2\r\n")
    pair.plane.flush()
    assert not pair.plane.has_interest(pair.plane.account("A"), b"e")


def test_a_service_is_served_as_long_as_it_is_imported() -> None:
    pair = started(NOTHING)
    for sharing in (shared(), NOTHING, shared(), {}):
        pair.held.follow(sharing)
        pair.plane.flush()
        if sharing not in (NOTHING, {}):
            assert pair.answer(pair.ask()) == [b"a"]
        pair.plane.feed(pair.requester, b"PUB s inbox 0\r\n\r\n")
        received(pair.plane, pair.requester)
        heard = received(pair.plane, pair.responder)
        assert len(heard) == (sharing not in (NOTHING, {}))


def test_an_answer_on_its_way_arrives_when_something_else_changes() -> None:
    pair = started(shared())
    reply = pair.ask()
    other = shared() | {"C": Sharing(imports=(Import(kind=SERVICE, account="A", subject="s", local="c"),))}
    pair.held.follow(other)
    pair.held.follow(shared(ServiceResponseType.STREAM))
    assert pair.answer(reply) == [b"a"]
    assert pair.answer(reply) == [b"a"]


def test_an_answer_is_lost_with_its_service() -> None:
    pair = started(shared())
    reply = pair.ask()
    pair.held.follow(NOTHING)
    assert pair.plane.statistics()["answers_waiting"] == 0
    assert pair.answer(reply) == []


def test_an_exporter_is_told_of_the_requester_as_the_present_import_says() -> None:
    """A connection keeps what was said of it for one import; the next import may lie at the same address."""
    pair = Pair(make_plane(lambda cid, *_: b'{"acc":"B","share":%d}' % bool(cid)))
    pair.start(shared())
    for share in (False, True, False, True):
        imports = (Import(kind=SERVICE, account="A", subject="s", share=share),)
        pair.held.follow({"A": shared()["A"], "B": Sharing(imports=imports)})
        pair.plane.feed(pair.requester, b"PUB s inbox 0\r\n\r\n")
        (got,) = received(pair.plane, pair.responder)
        assert (b'"share":1' in got.hdr) == share
        pair.plane.flush()


def test_a_service_that_is_imported_is_not_ended() -> None:
    pair = started(shared())
    with pytest.raises(ValueError, match="is imported"):
        pair.plane.end_service(1)
    with pytest.raises(ValueError, match="no service has the number 9"):
        pair.plane.end_service(9)
    with pytest.raises(ValueError, match="has no import 9"):
        pair.plane.end_import(pair.plane.account("B"), 9)


def test_mappings_and_limits_change() -> None:
    pair = started(NOTHING)
    to_x = Sharing(mappings=(Mapping(source="m", destinations=(Destination(subject="x"),)),))
    to_y = attrs.evolve(to_x, mappings=(Mapping(source="m", destinations=(Destination(subject="y"),)),))
    pair.plane.feed(pair.requester, b"SUB > 2\r\nUNSUB 1\r\n")
    for sharing, expected in ((to_x, "x"), (to_y, "y"), (Sharing(), "m")):
        pair.held.follow({"B": sharing})
        pair.plane.feed(pair.requester, b"PUB m 0\r\n\r\n")
        assert subjects(pair, pair.requester) == [expected]
    pair.held.follow({"B": Sharing(limits=ClientLimits(max_connections=1))})
    assert b"maximum account active connections" in pair.plane.take(client(pair.plane, "B"))
    pair.plane.flush()
    pair.held.follow({"B": Sharing()})
    assert b"-ERR" not in pair.plane.take(client(pair.plane, "B"))
