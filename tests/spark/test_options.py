import pytest

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import Options, Position, parse_options

NEEDED = {"servers": "nats://h:1", "stream": "S"}


def parsed(**options: str) -> Options:
    return parse_options({**NEEDED, **options})


def test_streams_are_names_and_patterns() -> None:
    with pytest.raises(BadOptionError, match="expected names of streams"):
        parse_options({"servers": "a", "streams": "a.b"})


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
        ({"tlsCertFile": __file__}, "'tlsCertFile' and 'tlsKeyFile' belong together"),
        (
            {"tlsCertFile": "/none"},
            "option 'tlsCertFile': the file cannot be read (No such file or directory), got '/n",
        ),
        ({"credsFile": "/none/x.creds"}, "option 'credsFile': the file cannot be read (No such file or directory)"),
        ({"credsFile": __file__}, "has no token (JWT)"),
        ({"nkeySeedFile": __file__}, "has no NKey seed"),
        ({"nkeySeed": "SUAHIDDEN"}, "option 'nkeySeed' has no NKey seed"),
        ({"jwt": "a.b.c"}, "option 'jwt' needs 'nkeySeed' or 'nkeySeedFile'"),
        ({"token": "t", "credsFile": __file__}, "'token' and 'credsFile' exclude each other"),
        ({"streams": "A,B"}, "'stream' and 'streams' exclude each other"),
        ({"subject": "a..b"}, "option 'subject': expected subjects"),
        ({"subject": "a.>.b"}, "option 'subject': expected subjects"),
        ({"columns": "data,key"}, "option 'columns': expected columns out of stream_seq, time"),
        ({"columns": "headers", "includeHeaders": "false"}, "no column is left"),
        ({"startingOffsets": "5", "startingOffsetsByTimestamp": "5"}, "exclude each other"),
        ({"startingOffsetsByTimestamp": "soon"}, "expected milliseconds since 1970"),
        ({"startingOffsets": '{"a.b": 5}'}, "'a.b' is no name of a stream"),
        ({"maxBytesPerTrigger": "16x"}, "option 'maxBytesPerTrigger': expected bytes"),
        ({"maxTriggerDelay": "5m"}, "is for 'minRowsPerTrigger'"),
        ({"minRowsPerTrigger": "9", "maxRecordsPerTrigger": "5"}, "'minRowsPerTrigger' is above"),
        ({"domain": "a.b"}, "option 'domain': a name has no"),
        ({"domain": "a", "apiPrefix": "b"}, "'domain' and 'apiPrefix' exclude each other"),
        ({"inboxPrefix": "a.*"}, "option 'inboxPrefix': expected tokens"),
        ({"acceptIncarnation": "new"}, "option 'acceptIncarnation': expected the creation time"),
        ({"acceptIncarnation": "2026-01-01T00:00:00Z@x"}, "expected <creation time>@<sequence>"),
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


@pytest.mark.parametrize(
    "given",
    [
        {"servers": "nats://me:hidden-thing@h:1"},
        {"token": "hidden-thing", "user": "me"},
        {"nkeySeed": "hidden-thing"},
        {"jwt": "hidden-thing"},
        {"password": "hidden-thing"},
    ],
)
def test_a_refusal_never_has_a_secret(given: dict[str, str]) -> None:
    with pytest.raises(BadOptionError) as raised:
        parsed(**given)
    assert "hidden-thing" not in str(raised.value)


def test_options_of_spark_itself_are_not_unknown() -> None:
    assert parsed(checkpointLocation="/x", **{"spark.sql.anything": "1"}) == parsed()


def test_positions_are_by_stream_or_for_all() -> None:
    several = {"servers": "a", "streams": "A,B,C,D*"}
    given = '{"A": 5, "B": "latest", "C": {"time": "2026-01-02T03:04:05Z"}}'
    starting = parse_options({**several, "startingOffsets": given}).starting
    assert starting.of("A") == Position(stream_seq=5)
    assert starting.of("B") == Position(keyword="latest")
    assert starting.of("C") == Position(time="2026-01-02T03:04:05.000000Z")
    assert starting.of("D") == Position(keyword="earliest")
    moment = Position(time="2026-01-02T03:04:05.678000Z")
    assert parsed(startingOffsetsByTimestamp="1767323045678").starting.of("A") == moment
    ending = parse_options({**several, "endingOffsetsByTimestamp": '{"A": 1767323045678}'}).ending
    assert ending == Position(keyword="latest", by_stream=(("A", moment),))


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("startingOffsets", '{"ORDER": 5}'),
        ("startingOffsets", '{"ORDERS": 5, "ORDER": 5}'),
        ("startingOffsetsByTimestamp", '{"ORDER": 1767323045678}'),
        ("endingOffsets", '{"ORDER": 5}'),
        ("endingOffsetsByTimestamp", '{"ORDER": 1767323045678}'),
        ("acceptIncarnation", '{"ORDER": "2026-01-02T03:04:05Z"}'),
    ],
)
@pytest.mark.parametrize("streams", [{"stream": "ORDERS"}, {"streams": "ORDERS,BILLS*"}])
def test_a_position_in_a_stream_that_is_not_read_is_refused(option: str, text: str, streams: dict[str, str]) -> None:
    with pytest.raises(BadOptionError, match=f"'{option}' names stream 'ORDER'; the query reads 'ORDERS'"):
        parse_options({"servers": "a", **streams, option: text})


def test_a_position_in_a_stream_that_a_pattern_may_find_is_kept() -> None:
    starting = parse_options({"servers": "a", "streams": "O*", "startingOffsets": '{"ORDERS": 5}'}).starting
    assert starting.of("ORDERS") == Position(stream_seq=5)


def test_the_prefix_of_the_api_follows_the_domain() -> None:
    assert parsed().access.api_prefix == "$JS.API"
    assert parsed(domain="hub").access.api_prefix == "$JS.hub.API"
    assert parsed(apiPrefix="imported.js.").access.api_prefix == "imported.js"


def test_columns_are_those_of_the_options() -> None:
    assert parsed(includeHeaders="false").columns == ("stream_seq", "time", "subject", "data")
    assert parsed(columns="data, stream_seq").columns == ("data", "stream_seq")
    several = parse_options({"servers": "a", "streams": "A,B_*"})
    assert several.columns[-1] == "stream"
    assert several.streams == ("A", "B_*")


@pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("64k", 65536), ("16m", 16 << 20), ("1GB", 1 << 30)])
def test_sizes_have_units(text: str, size: int) -> None:
    assert parsed(maxBytesPerTrigger=text).bytes_per_trigger_max == size
