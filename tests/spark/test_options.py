import pytest

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import Options, Position, parse_options

NEEDED = {"servers": "nats://h:1", "stream": "S"}


def parsed(**options: str) -> Options:
    return parse_options({**NEEDED, **options})


def test_defaults_read_everything_and_stop_on_loss() -> None:
    options = parsed()
    assert options.starting == Position(keyword="earliest")
    assert options.ending is None
    assert options.rows_per_trigger_max is None
    assert options.fail_on_data_loss is True
    assert options.partitions_min == 1


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("nats://a:1", ("nats://a:1",)),
        ("a", ("nats://a:4222",)),
        ("a:5, tls://b ,c:6/", ("nats://a:5", "tls://b:4222", "nats://c:6")),
        ("[::1]:7,nats://[fe80::1]", ("nats://[::1]:7", "nats://[fe80::1]:4222")),
    ],
)
def test_servers_are_urls_or_plain_hosts(text: str, urls: tuple[str, ...]) -> None:
    assert parsed(servers=text).access.servers == urls


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position(keyword="earliest")),
        ("LATEST", Position(keyword="latest")),
        ("17", Position(stream_seq=17)),
        ('{"seq": 17}', Position(stream_seq=17)),
        ("2026-01-02T03:04:05Z", Position(time="2026-01-02T03:04:05.000000Z")),
        ("2026-01-02 03:04:05.5+02:00", Position(time="2026-01-02T01:04:05.500000Z")),
        ('{"time": "2026-01-02T03:04:05Z"}', Position(time="2026-01-02T03:04:05.000000Z")),
    ],
)
def test_a_position_is_a_word_a_sequence_or_a_time(text: str, position: Position) -> None:
    assert parsed(startingOffsets=text).starting == position


def test_option_names_have_no_case() -> None:
    assert parse_options({"SERVERS": "a", "Stream": "S", "FAILONDATALOSS": "False"}).fail_on_data_loss is False


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.5", 0.5), ("250ms", 0.25), ("3s", 3.0)])
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert parsed(connectTimeout=text).access.connect_timeout_s == seconds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxRecordPerTrigger": "5"}, "did you mean 'maxRecordsPerTrigger'"),
        ({"path": "/x"}, "unknown option 'path'"),
        ({"servers": " "}, "option 'servers' is required"),
        ({"servers": ","}, "option 'servers': needs at least one"),
        ({"servers": "http://a"}, "option 'servers': servers look like"),
        ({"servers": "nats://a:0"}, "option 'servers': servers look like"),
        ({"servers": "nats://u:p@a:1"}, "credentials go into the options"),
        ({"stream": "a.b"}, "option 'stream': a stream name has no"),
        ({"stream": "a b"}, "option 'stream': a stream name has no"),
        ({"startingOffsets": "0"}, "option 'startingOffsets': sequences start at 1"),
        ({"startingOffsets": "-3"}, "option 'startingOffsets': expected earliest, latest, a sequence"),
        ({"startingOffsets": '{"seq": true}'}, "option 'startingOffsets': expected"),
        ({"startingOffsets": '{"seq": 1, "time": "x"}'}, "option 'startingOffsets': expected"),
        ({"startingOffsets": '{"seq": '}, "option 'startingOffsets': expected JSON"),
        ({"startingOffsets": "2026-01-02T03:04:05"}, "option 'startingOffsets': a time needs its zone"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets': expected latest"),
        ({"maxRecordsPerTrigger": "0"}, "option 'maxRecordsPerTrigger': expected a whole number"),
        ({"minPartitions": "many"}, "option 'minPartitions': expected a whole number"),
        ({"failOnDataLoss": "1"}, "option 'failOnDataLoss': expected true or false, got '1'"),
        ({"connectTimeout": "0"}, "option 'connectTimeout': expected seconds"),
        ({"user": "me"}, "'user' and 'password' belong together"),
        ({"user": "me", "password": "p", "token": "t"}, "'user' and 'token' exclude each other"),
        ({"tlsCertFile": "/c"}, "'tlsCertFile' and 'tlsKeyFile' belong together"),
    ],
)
def test_what_is_not_understood_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOptionError) as raised:
        parsed(**options)
    assert message in str(raised.value)


def test_secrets_are_not_shown() -> None:
    options = parsed(user="me", password="hidden-thing")
    assert "hidden-thing" not in repr(options)
    assert options.access.password == "hidden-thing"
