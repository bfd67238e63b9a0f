from jetraft.raft.engine.tempo import HALF_LIFE_NS, SAMPLE_NS_MAX, Peak, Tempo

MS = 1_000_000


def test_nothing_measured_is_nothing_known() -> None:
    assert Peak().read(5_000 * MS) == 0


def test_a_quick_sample_does_not_hide_a_slow_one() -> None:
    peak = Peak()
    peak.note(0, 500 * MS)
    peak.note(1, 2 * MS)
    assert peak.read(2) == 500 * MS


def test_an_old_sample_fades() -> None:
    peak = Peak()
    peak.note(0, 500 * MS)
    assert peak.read(HALF_LIFE_NS) == 250 * MS
    peak.note(2 * HALF_LIFE_NS, 200 * MS)
    assert peak.read(2 * HALF_LIFE_NS) == 200 * MS
    assert peak.read(1000 * HALF_LIFE_NS) == 0


def test_one_stall_counts_for_no_more_than_a_bound() -> None:
    peak = Peak()
    peak.note(0, 3_600_000 * MS)
    assert peak.read(0) == SAMPLE_NS_MAX


def test_a_vote_takes_the_own_disk_and_the_answer() -> None:
    tempo = Tempo()
    tempo.disk.note(0, 30 * MS)
    tempo.round_trip.note(0, 100 * MS)
    assert tempo.vote_ns(0) == 130 * MS
    tempo.answer.note(0, 140 * MS)
    assert tempo.vote_ns(0) == 170 * MS
