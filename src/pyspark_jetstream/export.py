"""`jetraft export` and `python -m pyspark_jetstream export`: write the messages of a stream to a Parquet file.

Secrets come from environment variables (flags.py).

Exit status: 0 when the file is complete, 1 when it was not written, 2 when the command line is wrong, 130 and 143 when
a signal stopped it. Where it is not 0, nothing was changed, and one line on the standard error stream says why.
"""

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import attrs

import pyspark_jetstream
from pyspark_jetstream.errors import BadOptionError, JetStreamSourceError
from pyspark_jetstream.flags import flag_of, options_given

DESCRIPTION = """\
Write the messages of a stream of running servers to a Parquet file, with the checks of the Spark source.
Prints a line of JSON: rows, row_groups, file_bytes, and the positions `start` and `end`, which are in the file too.
The file appears when it is complete. Values are those of docs/spark.md."""
EPILOG = """\
examples:
  %(prog)s --servers nats://127.0.0.1:4222 --stream ORDERS orders.parquet
  %(prog)s --servers nats://n1:4222,nats://n2:4222 --stream ORDERS --subject 'orders.eu.>' \\
      --starting-offsets-by-timestamp 2026-01-01T00:00:00Z --columns time,data orders-eu.parquet
  %(prog)s --servers nats://127.0.0.1:4222 --stream ORDERS --after orders.parquet orders-2.parquet

exit status: 0 the file is complete, 1 it was not written, 2 the command line is wrong"""

OPTIONS = {
    "what is read": {
        "servers": ("URLS", "comma-separated, such as nats://127.0.0.1:4222; one is enough"),
        "stream": ("NAME", "the stream"),
        "streams": ("NAMES", "instead: names and patterns with *; adds a column for the name"),
        "subject": ("FILTERS", "subject filters, comma-separated"),
        "columns": ("NAMES", "columns, comma-separated, in this order"),
        "includeHeaders": ("BOOL", "false: leave out the headers"),
        "startingOffsets": ("WHERE", "earliest (default), latest, a sequence, a time, or JSON by stream"),
        "startingOffsetsByTimestamp": ("TIME", "RFC 3339, or milliseconds since 1970"),
        "endingOffsets": ("WHERE", "latest (default), a sequence or a time, exclusive"),
        "endingOffsetsByTimestamp": ("TIME", "the same, exclusive"),
    },
    "with --after": {
        "maxRecordsPerTrigger": ("N", "at most this many sequences"),
        "maxBytesPerTrigger": ("SIZE", "about this many bytes, such as 64m"),
        "acceptIncarnation": ("CREATED[@SEQ]", "the stream was created again or restored: continue in it"),
    },
    "errors and timeouts": {
        "failOnDataLoss": ("BOOL", "false: leave out rows that are lost, and report them"),
        "connectTimeout": ("SECONDS", "time limit for one connection (3)"),
        "retryTimeout": ("SECONDS", "give up when no server makes progress for this long (30)"),
    },
    "how to connect": {
        "user": ("NAME", "user name"),
        "password": ("", "the user's password"),
        "token": ("", "a token, instead of a user"),
        "credsFile": ("FILE", "credentials file (.creds)"),
        "nkeySeedFile": ("FILE", "file with the seed of the user's NKey"),
        "nkeySeed": ("", "that seed"),
        "jwt": ("", "the user's JWT, to use with one of these seeds"),
        "tls": ("BOOL", "true: require TLS (tls:// in a URL does too)"),
        "tlsHandshakeFirst": ("BOOL", "true: start TLS before the server sends INFO"),
        "tlsCaFile": ("FILE", "certificate authorities that may have signed the server's certificate (PEM)"),
        "tlsCertFile": ("FILE", "certificate of this client (PEM)"),
        "tlsKeyFile": ("FILE", "private key of that certificate (PEM)"),
        "domain": ("NAME", "JetStream domain"),
        "apiPrefix": ("PREFIX", "prefix of the JetStream API"),
        "inboxPrefix": ("PREFIX", "prefix of the subjects for answers"),
        "queryName": ("NAME", "name of the connections in /connz"),
    },
}
USAGE_ERROR = 2


class StoppedError(Exception):
    """A signal asks for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def main(words: Sequence[str], *, program: str, **told: Any) -> int:
    """Run the command; returns the exit status. `told` may have the `progress` of `to_parquet`."""
    given = _parser(program).parse_args(words)
    try:
        with _stoppable():
            outcome = _export(given, told)
    except BadOptionError as error:
        return _failed(program, str(error), USAGE_ERROR)
    except (JetStreamSourceError, OSError, ImportError) as error:
        return _failed(program, str(error), 1)
    except StoppedError as error:
        return _failed(program, str(error), 128 + error.number)
    sys.stdout.write(json.dumps(outcome) + "\n")
    return 0


def _failed(program: str, reason: str, status: int) -> int:
    sys.stderr.write(f"{program}: {reason}\n")
    return status


def _export(given: argparse.Namespace, told: Mapping[str, Any]) -> dict[str, Any]:
    exported = pyspark_jetstream.to_parquet(  # where pyarrow is missing this says so
        given.file,
        after=pyspark_jetstream.offsets_of(given.after)["end"] if given.after else None,
        overwrite=given.overwrite,
        compression=given.compression,
        **told,
        **options_given(given, (name for group in OPTIONS.values() for name in group)),
    )
    return attrs.asdict(exported)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s --servers URLS --stream NAME [option ...] FILE",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="the Parquet file to write")
    parser.add_argument("--after", metavar="FILE", help="continue where an earlier export ended")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    parser.add_argument("--compression", default="zstd", help="zstd (default), snappy, gzip, lz4 or none")
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, (value, text) in options.items():
            group.add_argument(
                flag_of(name),
                dest=name,
                metavar=value or "VARIABLE",
                help=text if value else f"environment variable with {text}",
            )
    return parser


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGINT and SIGTERM raise StoppedError, so that the unfinished file is removed."""

    def stop(number: int, _: FrameType | None) -> None:
        raise StoppedError(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
