"""Asks the server in this container whether it lives; with a path it prints that page. The image has no curl.

    healthcheck.py               exits with 0 when the server runs (liveness: one damaged stream is no reason to end it)
    healthcheck.py --ready       exits with 0 when all streams are current: the next node may be restarted
    healthcheck.py /varz         prints a monitoring page

The reason for 1 is one line, which `docker inspect` shows and which goes to the log of the container as well.
"""

import http.client
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

TIMEOUT_S = 2.0
LIVENESS = "/healthz?js-enabled-only=1"
READINESS = "/healthz"
LOG_OF_THE_SERVER = Path("/proc/1/fd/2")  # what `docker logs` shows; a health check's own output is not in it


def page(path: str) -> tuple[int, bytes]:
    """Status and body. Raises OSError, HTTPException."""
    host = os.environ.get("JETRAFT_HEALTH_ADDRESS", "127.0.0.1:8222")
    connection = http.client.HTTPConnection(host, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def reason(path: str) -> str:
    """Why the answer is not ok; empty when it is."""
    try:
        status, body = page(path)
        document = json.loads(body)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{path}: {error}"
    return "" if document.get("status") == "ok" else f"{path}: {status} {document.get('error', '')}"


def main(words: list[str]) -> int:
    """Returns the exit status."""
    if words and words[0].startswith("/"):
        status, body = page(words[0])
        sys.stdout.write(body.decode() + "\n")
        return 0 if status == http.client.OK else 1
    found = reason(READINESS if words == ["--ready"] else LIVENESS)
    if not found:
        return 0
    sys.stderr.write(f"unhealthy: {found}\n")
    if not words and os.getpid() != 1:
        with suppress(OSError), LOG_OF_THE_SERVER.open("a", encoding="utf-8") as log:
            log.write(f"unhealthy: {found}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
