"""`python -m pyspark_jetstream doctor [--servers URLS] [--stream NAME]`, and `export` (see export.py)."""

import argparse
import sys

from pyspark_jetstream.doctor import findings
from pyspark_jetstream.export import main as export


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status, 1 when something that a query needs is missing."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == "export":
        return export(words[1:], program="python -m pyspark_jetstream export")
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_jetstream", description="The JetStream source for Spark.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="check what a query needs: Java, packages, interpreter, servers")
    doctor.add_argument("--servers", help="comma-separated, such as nats://127.0.0.1:4222")
    doctor.add_argument("--stream", help="a stream that should be readable")
    commands.add_parser("export", help="write a stream to a Parquet file (export --help)", add_help=False)
    given = parser.parse_args(words)
    healthy = True
    for finding in findings(given.servers, given.stream):
        sys.stdout.write(finding.line() + "\n")
        sys.stdout.flush()
        healthy = healthy and finding.ok
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
