"""One client that asks too much, on real servers: everybody is answered, and memory stays where it was."""

from collections.abc import Iterator

import pytest

from tests.faults.floods import BATCH_GETS, batch_get, create_streams, fill, measure, stream_list, varied
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient

pytestmark = pytest.mark.campaign

STREAMS = 10
GROWN_BYTES_MAX = 64 << 20  # what waits is some 10 MB; the rest is for answers on their way, and for the allocator


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("jetraft", directory=tmp_path_factory.mktemp("floods")) as made:
        with RawClient(made[0].address) as client:
            create_streams(client, STREAMS)
            fill(client)
        yield made


def test_each_request_of_a_flood_is_answered_or_refused_and_publishes_go_on(cluster: Cluster) -> None:
    cost = measure(cluster, varied, rate=10_000, seconds=2, streams=STREAMS)

    assert cost.answered.missing == 0, cost
    assert set(cost.answered.answers) <= {"ok", "404", "429"}, cost
    assert cost.answered.answers["429"] > 0, cost  # or it was no flood
    assert cost.grown_bytes < GROWN_BYTES_MAX, cost
    assert cost.log_lines < 20, cost
    assert cost.elections == 0, cost
    assert cost.acknowledged > 0, cost


def test_a_flood_of_one_question_is_answered_with_few_answers(cluster: Cluster) -> None:
    cost = measure(cluster, stream_list, rate=4_000, seconds=2, streams=STREAMS)

    assert cost.answered.answers == {"ok": cost.answered.sent}, cost
    assert cost.grown_bytes < GROWN_BYTES_MAX, cost
    assert cost.elections == 0, cost


def test_batches_that_nobody_reads_wait_without_memory_and_are_complete_when_they_are_read(cluster: Cluster) -> None:
    cost = measure(cluster, batch_get, rate=5_000, seconds=1, streams=STREAMS)

    assert set(cost.answered.answers) <= {"204", "429"}, cost
    assert cost.answered.answers["204"] > 0, cost
    assert cost.answered.missing == 0, cost
    assert cost.answered.sent == BATCH_GETS
    assert cost.grown_bytes < GROWN_BYTES_MAX, cost
