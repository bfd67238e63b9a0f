"""`python -m tests.conformance --a reference --b jetraft` prints every difference between two servers as a table."""

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.conformance.compare import differences
from tests.conformance.known import meant
from tests.conformance.runner import Observation, run_scenes
from tests.conformance.scenes import SCENES
from tests.harness.server import Kind, Server

WIDTH = 100
Shown = dict[str, dict[str, Observation]]


def observe(kind: Kind, only: str, directory: Path) -> Shown:
    """What a fresh server of this kind shows in the chosen scenes.

    The reference starts again for every scene: under load a stream that it deletes and creates again at once can come
    back with its old messages. jetraft does for those with a configuration.
    """
    scenes = [scene for scene in SCENES if only in scene.name]
    started = time.monotonic()
    shown: Shown = {}
    together = [] if kind == "reference" else [scene for scene in scenes if not scene.config]
    if together:
        with Server(kind, directory=directory) as server:
            shown = run_scenes(server.address, together)
    for number, scene in enumerate(scenes):
        if scene not in together:
            with Server(kind, directory=directory / str(number), config=scene.config or None) as server:
                shown |= run_scenes(server.address, [scene])
    steps = sum(map(len, shown.values()))
    sys.stderr.write(f"{kind}: {len(shown)} scenes, {steps} steps in {time.monotonic() - started:.1f} s\n")
    return shown


def observe_both(kinds: tuple[Kind, Kind], only: str, directory: Path) -> tuple[Shown, Shown]:
    """What two servers show. At the same time: both mostly wait, for what scenes say is to take time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        places = (directory / "a", directory / "b")
        running = [pool.submit(observe, kind, only, place) for kind, place in zip(kinds, places, strict=True)]
        return running[0].result(), running[1].result()


def short(value: Any) -> str:
    """A value on one line."""
    encoded = json.dumps(value)
    return encoded if len(encoded) <= WIDTH else encoded[: WIDTH - 3] + "..."


def report(left: Shown, right: Shown, names: tuple[str, str]) -> int:
    """Print the differences and return how many steps differ without a reason."""
    differing = total = 0
    for scene, steps in left.items():
        for step, expected in steps.items():
            total += 1
            found = differences(expected, right.get(scene, {}).get(step))
            unknown = [row for row in found if not meant(scene, step, row[0])]
            if not unknown:
                continue
            differing += 1
            sys.stdout.write(f"{scene} / {step}\n")
            for path, a, b in unknown:
                sys.stdout.write(f"    {path}\n        {names[0]}: {short(a)}\n        {names[1]}: {short(b)}\n")
    sys.stdout.write(f"{total - differing} of {total} steps equal, {differing} differ\n")
    return differing


def main() -> int:
    """Run both servers and compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--a", default="reference", choices=["reference", "jetraft"])
    parser.add_argument("--b", default="jetraft", choices=["reference", "jetraft"])
    parser.add_argument("--only", default="", help="part of the names of the scenes to run")
    parser.add_argument("--show", action="store_true", help="print what the first server shows and stop")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="conformance") as directory:
        if chosen.show:
            sys.stdout.write(json.dumps(observe(chosen.a, chosen.only, Path(directory)), indent=1) + "\n")
            return 0
        left, right = observe_both((chosen.a, chosen.b), chosen.only, Path(directory))
    return 1 if report(left, right, (chosen.a, chosen.b)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
