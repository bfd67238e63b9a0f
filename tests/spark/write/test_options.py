"""Options of a write, and what a stream must be for it: what is wrong is named before a row is sent."""

from typing import Any

import pytest

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.write.options import WriteOptions, parse_write_options
from pyspark_jetstream.write.target import check_config

EXACTLY = {"delivery": "exactly-once", "fenceSubject": "f.spark"}
STREAM = {"subjects": ["S.>", "f.>"], "allow_atomic": True, "retention": "limits"}


def parse(**given: str) -> WriteOptions:
    return parse_write_options({"servers": "nats://h:1", "stream": "S", **given})


def test_options_have_defaults_and_any_case() -> None:
    assert parse() == parse(DELIVERY="At-Least-Once")
    found = parse(**EXACTLY, writeId="job-7", writeepoch="3", user="u", password="p")
    assert (found.exactly_once, found.fence_subject, found.write_id, found.write_epoch) == (True, "f.spark", "job-7", 3)
    assert found.access.user == "u"


def test_options_of_spark_are_not_unknown() -> None:
    assert parse(checkpointLocation="/x", partitionOverwriteMode="static") == parse()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delivry": "x"}, "unknown option 'delivry' of a write; known options: .*delivery"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is for reading"),
        ({"delivery": "twice"}, "option 'delivery': expected at-least-once or exactly-once"),
        ({"delivery": "exactly-once"}, "option 'fenceSubject' is required"),
        ({"fenceSubject": "f"}, "option 'fenceSubject' is for delivery=exactly-once"),
        ({"writeId": "f"}, "option 'writeId' is for delivery=exactly-once"),
        ({**EXACTLY, "fenceSubject": "f.*"}, "option 'fenceSubject': expected a subject without wildcards"),
        ({**EXACTLY, "writeId": "a.b"}, "option 'writeId': expected up to 64 letters"),
        ({**EXACTLY, "writeEpoch": "1"}, "option 'writeEpoch' needs option 'writeId'"),
        ({**EXACTLY, "writeId": "a", "writeEpoch": "-1"}, "option 'writeEpoch': expected a whole number"),
        ({"subject": "a b"}, "option 'subject'"),
        ({"servers": ""}, "option 'servers' is required"),
        ({"user": "u"}, "belong together"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadOptionError, match=message):
        parse(**given)


@pytest.mark.parametrize(
    ("config", "given", "message"),
    [
        ({"mirror": {"name": "O"}}, {}, "has no subjects"),
        ({"subjects": None}, {}, "has no subjects"),
        ({"sealed": True}, {}, "is sealed"),
        ({"no_ack": True}, {}, "no_ack"),
        ({}, {"subject": "T.a"}, "option 'subject': stream 'S' keeps S.>, f.>, not 'T.a'"),
        ({"allow_atomic": False}, EXACTLY, "needs allow_atomic"),
        ({"subjects": ["S.>"]}, EXACTLY, r"the subjects of stream 'S' \(S.>\) do not contain f.spark.>: add it"),
        ({"subjects": ["S.>", "f.*.*"]}, EXACTLY, "do not contain"),
        ({"retention": "workqueue"}, EXACTLY, "needs retention limits"),
        ({"subject_transform": {"src": "a"}}, EXACTLY, "subject_transform"),
        ({"discard_new_per_subject": True}, EXACTLY, "allow_rollup_hdrs"),
    ],
)
def test_a_stream_that_cannot_be_written_to_is_an_error_of_planning(
    config: dict[str, Any], given: dict[str, str], message: str
) -> None:
    check_config(STREAM, parse(**given) if "subject" not in given else parse())
    with pytest.raises(BadOptionError, match=message):
        check_config({**STREAM, **config}, parse(**given))
