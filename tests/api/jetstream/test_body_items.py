"""How much a request may name; an archive of a server that has no such bound is restored."""

from collections.abc import Iterator

import pytest

from jetraft.store.model.encoding.body_items import ITEMS_MAX, ITEMS_OF
from tests.harness.raw import RawClient
from tests.harness.server import Server

MORE = ITEMS_MAX + 1
SUBJECTS = [f"items.{number}" for number in range(MORE)]


@pytest.fixture(name="client")
def _client(server: Server) -> Iterator[RawClient]:
    with RawClient(server.address) as client:
        yield client


@pytest.mark.parametrize(
    "fields",
    [
        {"subjects": SUBJECTS},
        {"sources": [{"name": f"N{number}"} for number in range(MORE // ITEMS_OF["sources"])]},
        {"metadata": dict.fromkeys(SUBJECTS, "")},
    ],
)
def test_a_stream_that_names_too_much_is_refused(client: RawClient, fields: dict[str, object]) -> None:
    error = client.api("STREAM.CREATE.ITEMS", {"name": "ITEMS", **fields})["error"]
    assert error["err_code"] == 10025
    assert f"more than {ITEMS_MAX} items" in error["description"]
    assert client.api("STREAM.INFO.ITEMS")["error"]["err_code"] == 10059


def test_a_consumer_that_names_too_much_is_refused(client: RawClient) -> None:
    assert "error" not in client.api("STREAM.CREATE.FEW", {"name": "FEW", "subjects": ["items.>"]})
    config = {"durable_name": "d", "filter_subjects": SUBJECTS}
    answer = client.api("CONSUMER.CREATE.FEW.d", {"stream_name": "FEW", "config": config})
    assert answer["error"]["err_code"] == 10025


def test_an_archive_that_names_more_is_taken(client: RawClient) -> None:
    config = {"name": "OLD", "subjects": SUBJECTS, "retention": "limits", "storage": "file", "num_replicas": 1}
    answer = client.api("STREAM.RESTORE.OLD", {"config": config, "state": {}})
    assert "deliver_subject" in answer, answer
