"""How the commands that are clients log in: options of pyspark_jetstream as flags, secrets from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import SECRETS, parse_options

if TYPE_CHECKING:
    import argparse

    from pyspark_jetstream.options import Access

LOGIN: Final = {
    "servers": "URLS: comma-separated, such as nats://127.0.0.1:4222",
    "user": "NAME",
    "password": "of the user",
    "token": "instead of a user",
    "credsFile": "FILE: credentials (.creds)",
    "nkeySeedFile": "FILE: the seed of a user's NKey",
    "tls": "BOOL: true without tls:// too",
    "tlsHandshakeFirst": "BOOL: the handshake comes before the server's INFO",
    "tlsCaFile": "FILE: authorities",
    "tlsCertFile": "FILE: of this client",
    "tlsKeyFile": "FILE: of this client",
    "domain": "NAME: of JetStream",
    "connectTimeout": "SECONDS",
}


def add_login(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    for name, what in LOGIN.items():
        value, _, rest = what.rpartition(": ") if ": " in what else ("NAME", "", what)
        parser.add_argument(_flag(name), dest=name, metavar=value, help=rest, required=name == "servers")


def access_of(given: argparse.Namespace) -> Access:
    """What the flags say. Raises BadOptionError."""
    options = {"streams": "*", "queryName": "backup"}
    for name in LOGIN:
        text = getattr(given, name)
        if text is not None and name in SECRETS:
            variable, text = text, os.environ.get(text)
            if not text:
                raise BadOptionError(f"{_flag(name)}: the environment variable {variable} is not set or empty")
        if text is not None:
            options[name] = text
    return parse_options(options).access


def _flag(name: str) -> str:
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)
    return f"--{words}-env" if name in SECRETS else f"--{words}"
