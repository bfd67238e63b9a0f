"""What leaves when: at once, when the log is durable, or never."""

from jetraft.raft.engine.messages import SnapshotOffer, TermNotice, VoteGrant
from jetraft.raft.engine.ready import NOTHING, Ready
from jetraft.raft.outbox import RaftOutbox
from tests.raft.rig import A, B

NOTICE, GRANT = TermNotice(term=2), VoteGrant(term=2)


def test_what_waits_for_the_disk_leaves_when_its_token_is_durable() -> None:
    outbox = RaftOutbox()
    outbox.put(Ready(send_now=[(A, NOTICE)], send_when_durable=[(3, B, GRANT), (4, A, GRANT)]))
    assert outbox.take_sends() == [(A, NOTICE)]
    outbox.release(2)
    assert outbox.take_sends() == ()
    outbox.release(3)
    assert outbox.take_sends() == [(B, GRANT)]
    outbox.release(9)
    assert outbox.take_sends() == [(A, GRANT)]


def test_a_promise_of_a_term_that_is_over_never_leaves_but_those_of_the_new_one_do() -> None:
    outbox = RaftOutbox()
    outbox.put(Ready(send_when_durable=[(3, B, GRANT)]))
    outbox.put(Ready(voids_held=True, send_when_durable=[(5, A, VoteGrant(term=3))]))
    outbox.release(5)
    assert outbox.take_sends() == [(A, VoteGrant(term=3))]


def test_what_was_released_leaves_before_what_is_sent_because_of_that() -> None:
    outbox = RaftOutbox()
    outbox.put(Ready(send_when_durable=[(3, B, GRANT)]))
    outbox.release(3)
    outbox.put(Ready(send_now=[(B, NOTICE)]))
    assert outbox.take_sends() == [(B, GRANT), (B, NOTICE)]


def test_an_offer_is_handed_out_once_and_the_newest_counts() -> None:
    outbox = RaftOutbox()
    offers = [SnapshotOffer(term=1, index=index, index_term=1, members=b"") for index in (5, 9)]
    for offer in offers:
        outbox.put(Ready(offer=(B, offer)))
    outbox.put(NOTHING)
    assert outbox.take_offer() == (B, offers[1])
    assert outbox.take_offer() is None
