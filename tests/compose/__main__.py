"""`make compose-check`: the compose cluster brought up, disturbed and taken down, with a table of what it did.

The images are built from the present sources first.

Exit status: 0 when all held, 1 when something did not, 3 when an engine or compose is missing.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

import attrs

from tests.compose.engine import SECRET, CheckFailedError, ComposeCluster, build_images, missing
from tests.compose.load import Load
from tests.compose.steps import AFTERWARDS, GAPS_MAX_S, LOADED, Check, Step, publish, read_back, spark
from tests.harness.ports import HOST

FAILED, LACKING = 1, 3
HEAD: Final = "| Step | Seconds | Longest time without an acknowledgement | What was seen |\n|---|---|---|---|\n"


@attrs.frozen
class Row:
    """A line of the table."""

    name: str
    seconds: float
    gap_s: float | None  # None: nothing was published
    note: str

    def __str__(self) -> str:
        gap = "" if self.gap_s is None else f"{self.gap_s * 1000:,.0f} ms"
        return f"| {self.name} | {self.seconds:.1f} | {gap} | {self.note} |"


def perform(check: Check, name: str, step: Step, *, is_loaded: bool) -> Row:
    """Do one step and say how long it took, and how long no acknowledgement came."""
    began_s = time.monotonic()
    check.load.begin_step()
    note = step(check)
    if is_loaded:
        check.load.wait_for_more(100)
    gap_s = check.load.end_step() if is_loaded else None
    row = Row(name, time.monotonic() - began_s, gap_s, note)
    sys.stdout.write(f"{row}\n")
    sys.stdout.flush()
    if gap_s is not None and gap_s > GAPS_MAX_S.get(name, gap_s):
        raise CheckFailedError(
            f"{name}: {gap_s:.1f} s without an acknowledgement, {GAPS_MAX_S[name]:.1f} s are allowed"
        )
    return row


def chosen(steps: Sequence[tuple[str, Step]], only: str, *, with_spark: bool = True) -> list[tuple[str, Step]]:
    """The steps whose names contain `only`, and those that need no choice: publishing, and reading back."""
    found = [(name, step) for name, step in steps if only in name or step in (publish, read_back)]
    return [(name, step) for name, step in found if step is not spark or with_spark]


def perform_all(cluster: ComposeCluster, only: str, *, with_spark: bool) -> list[Row]:
    """The whole check. Raises CheckFailedError and what the client raises."""
    cluster.write_secrets(SECRET)
    check = Check(cluster, Load(f"nats://{HOST}:{cluster.ports['n1']}"), without_spark=not with_spark)
    sys.stdout.write(HEAD)
    began_s = time.monotonic()
    cluster.up()
    rows = [Row("bring up", time.monotonic() - began_s, None, "three nodes are current")]
    sys.stdout.write(f"{rows[0]}\n")
    check.load.start()
    rows += [perform(check, *step, is_loaded=True) for step in chosen(LOADED, only, with_spark=with_spark)]
    rows += [perform(check, *step, is_loaded=False) for step in chosen(AFTERWARDS, only)]
    return rows


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="make compose-check", description=__doc__)
    parser.add_argument("--image", default="jetraft:latest")
    parser.add_argument("--spark-image", default="jetraft-spark:latest")
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--only", default="", help="steps whose names contain this")
    given = parser.parse_args()
    lacks = missing()
    if lacks:
        sys.stderr.write("compose-check: not run.\n" + "".join(f"  {line}\n" for line in lacks))
        return LACKING
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # taken down as after Ctrl-C
    cluster = ComposeCluster(given.image, given.spark_image)
    status = 0
    try:
        images = {"server": given.image} | ({} if given.without_spark else {"spark": given.spark_image})
        build_images(images)
        perform_all(cluster, given.only, with_spark=not given.without_spark)
    except (CheckFailedError, OSError, TimeoutError, AssertionError) as error:
        sys.stderr.write(f"compose-check: failed: {error}\n")
        sys.stderr.write(cluster.compose("logs", "--tail", "15", "--no-color"))
        status = FAILED
    except KeyboardInterrupt:
        sys.stderr.write("compose-check: interrupted\n")
        status = FAILED
    finally:
        cluster.down()
    left = cluster.left_behind()
    sys.stdout.write("nothing is left behind\n" if not left else f"left behind: {' '.join(left)}\n")
    return status or (FAILED if left else 0)


if __name__ == "__main__":
    sys.exit(main())
