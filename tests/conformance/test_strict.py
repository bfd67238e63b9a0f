"""`jetstream { strict: false }`: fields that no request has are passed over, by both servers, and nothing else is."""

from pathlib import Path
from typing import Final

import pytest

from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
KINDS: Final[tuple[Kind, Kind]] = ("reference", "jetraft")
CONFIG: Final = "jetstream { strict: false }"
ASKED: Final = (
    ("STREAM.CREATE.S", b'{"name":"S","subjects":["s"],"other":1}'),
    ("STREAM.CREATE.P", b'{"name":"P","placement":{"other":[1,{"a":2}]},"consumer_limits":{"other":1}}'),
    ("STREAM.CREATE.C", b'{"name":"C","sources":[{"name":"S","other":1}]}'),
    ("STREAM.CREATE.T", b'{"name":"T"} {"name":"U"}'),
    ("STREAM.CREATE.T", b'{"name":"T","other":1} {"name":"U"}'),
    ("STREAM.CREATE.T", b'{"name":"T","other":1} x'),
    ("STREAM.CREATE.T", b'{"name":"T","other":1'),
    ("STREAM.CREATE.T", b'{"name":"T",}'),
    ("STREAM.CREATE.T", b"nope"),
    ("STREAM.CREATE.T", b""),
    ("STREAM.CREATE.T", b"5"),
    ("STREAM.CREATE.T", b"[]"),
    ("STREAM.CREATE.T", b"null"),
    ("STREAM.CREATE.T", b'{"other":1,"name":5}'),
    ("STREAM.CREATE.T", b'{"name":"T","retention":"x","other":1}'),
    ("STREAM.CREATE.T", b'{"other":{"retention":"x"},"name":"T","max_age":"5"}'),
    ("STREAM.INFO.S", b'{"other":1}'),
    ("STREAM.INFO.S", b'{"other":1'),
    ("STREAM.INFO.S", b"nope"),
    ("STREAM.NAMES", b'{"other":1}'),
    ("STREAM.LIST", b'{"other":1,"offset":"x"}'),
    ("STREAM.MSG.GET.S", b'{"seq":1,"other":1}'),
    ("STREAM.PURGE.S", b'{"other":1}'),
    ("STREAM.MSG.DELETE.S", b'{"seq":9,"other":1}'),
    ("CONSUMER.CREATE.S.c", b'{"stream_name":"S","other":1,"config":{"name":"c","other":2,"ack_policy":"explicit"}}'),
    ("CONSUMER.PAUSE.S.c", b'{"other":1}'),
    ("CONSUMER.UNPIN.S.c", b'{"other":1,"group":"g"}'),
    ("CONSUMER.RESET.S.c", b'{"other":1,"seq":1}'),
    ("CONSUMER.NAMES.S", b'{"other":1}'),
    ("CONSUMER.INFO.S.c", b'{"other":1}'),
    ("STREAM.UPDATE.S", b'{"name":"S","subjects":["s"],"other":1,"description":"d"}'),
    ("STREAM.DELETE.S", b'{"other":1}'),
    ("INFO", b'{"other":1}'),
)


def answers(kind: Kind, directory: Path, config: str) -> list[tuple[str, bytes, object]]:
    """What each request leads to: the error, or the configuration of what there is then."""
    directory.mkdir()
    found = []
    with Server(kind, directory=directory, config=config) as server, RawClient(server.address) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c", "ack_policy": "explicit"}})
        for subject, body in ASKED:
            said = client.request(f"$JS.API.{subject}", body)
            found.append((subject, body, error_of(said[0].payload) if said else "no answer"))
        page = server.get("/jsz?config=true")[1]
        found.append(("/jsz", b"", page["config"].get("strict")))
    return found


def error_of(payload: bytes) -> object:
    _, error, text = payload.partition(b'"error":')
    return text.partition(b"}")[0] if error else "done"


@pytest.mark.parametrize("config", [CONFIG, "jetstream {}"])
def test_both_pass_over_the_same(config: str, tmp_path: Path) -> None:
    theirs, ours = (answers(kind, tmp_path / kind, config) for kind in KINDS)
    assert ours == theirs
    done = [subject for subject, _, outcome in ours if outcome == "done"]
    assert ("STREAM.CREATE.P" in done) == (config == CONFIG)
