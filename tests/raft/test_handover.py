"""Whether the trio thread may write a log itself, and what the writer has."""

import pytest

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.handover import Handover
from jetraft.store.log.mem_log import MemLog
from tests.raft.rig import A, B, C, entry

ALONE = Configuration(voters=(A,))


class SlowLog(MemLog):
    """Its disk would be waited for."""

    def would_block(self, _bytes_max: int) -> bool:
        return True


def test_what_was_handed_over_is_not_handed_over_again() -> None:
    log = MemLog()
    handover = Handover(log)
    handover.write(may_block=False)
    assert not handover.has_unwritten()
    log.append([entry(1, 1)])
    assert handover.has_unwritten()
    handover.write(may_block=False)
    assert not handover.has_unwritten()


@pytest.mark.parametrize(
    ("configuration", "blocks"),
    [
        (ALONE, True),
        (Configuration(voters=(A,), learners=(B,)), False),
        (Configuration(voters=(A, B, C)), False),
    ],
)
def test_only_who_has_no_other_member_waits_for_its_disk(configuration: Configuration, *, blocks: bool) -> None:
    assert Handover(SlowLog()).would_block(configuration) is blocks


def test_what_nobody_waits_for_is_left_to_the_writer_until_somebody_does() -> None:
    handover = Handover(SlowLog())
    handover.write(may_block=False)
    handover.note_proposal(is_awaited=False, is_first=True)
    assert not handover.would_block(ALONE)
    handover.note_proposal(is_awaited=True, is_first=False)
    assert handover.would_block(ALONE)
    handover.note_proposal(is_awaited=False, is_first=False)
    assert handover.would_block(ALONE), "one that is queued already is waited for"
