"""Options as flags of a command: `startingOffsets` is `--starting-offsets`.

Secrets are no arguments, because other users of the machine can see those: `--password-env NAME` names an environment
variable that has it.
"""

import argparse
import os
import re
from collections.abc import Iterable
from typing import Any

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import SECRETS


def flag_of(name: str) -> str:
    """The flag of an option: `--starting-offsets`, `--password-env`."""
    words = re.sub("([A-Z])", r"-\1", name).lower()
    return f"--{words}-env" if name in SECRETS else f"--{words}"


def options_given(given: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The options among these that the command line has, secrets read from the environment. Raises BadOptionError."""
    options: dict[str, Any] = {}
    for name in names:
        text = getattr(given, name)
        if text is not None and name in SECRETS:
            variable, text = text, os.environ.get(text)
            if not text:
                raise BadOptionError(f"{flag_of(name)}: the environment variable {variable} is not set or empty")
        if text is not None:
            options[name] = text
    return options
