"""Counts in fixed buckets, weighted by how many took as long."""

from jetraft.store.model.histogram import BOUNDS_NS, Histogram


def test_an_observation_is_in_the_bucket_whose_end_includes_it() -> None:
    histogram = Histogram()
    for elapsed_ns in (0, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1] + 1):
        histogram.note(elapsed_ns)
    found = histogram.statistics()
    assert (found.counts[0], found.counts[1], found.counts[-1], sum(found.counts)) == (2, 1, 1, 4)
    assert found.sum_ns == 2 * BOUNDS_NS[0] + 1 + BOUNDS_NS[-1] + 1


def test_a_batch_counts_as_many_as_it_has() -> None:
    histogram = Histogram()
    histogram.note(1000, 250)
    found = histogram.statistics()
    assert (found.counts[0], sum(found.counts), found.sum_ns) == (250, 250, 250_000)
