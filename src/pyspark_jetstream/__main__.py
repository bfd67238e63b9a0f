"""`python -m pyspark_jetstream doctor [--servers URLS] [--stream NAME]`."""

import argparse
import sys

from pyspark_jetstream.doctor import findings


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status, 1 when something that a query needs is missing."""
    parser = argparse.ArgumentParser(prog="python -m pyspark_jetstream", description="The JetStream source for Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="check what a query needs: Java, packages, interpreter, servers")
    doctor.add_argument("--servers", help="comma-separated, such as nats://127.0.0.1:4222")
    doctor.add_argument("--stream", help="a stream that should be readable")
    given = parser.parse_args(arguments)
    healthy = True
    for finding in findings(given.servers, given.stream):
        sys.stdout.write(finding.line() + "\n")
        sys.stdout.flush()
        healthy = healthy and finding.ok
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
