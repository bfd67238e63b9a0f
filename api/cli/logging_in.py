"""How the commands that are clients log in: options of pyspark_jetstream as flags, secrets from the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_jetstream.flags import flag_of, options_given
from pyspark_jetstream.options import parse_options

if TYPE_CHECKING:
    import argparse

    from pyspark_jetstream.options import Access

LOGIN: Final = {  # metavar and help; a secret is read from an environment variable, which the flag names
    "servers": ("URLS", "servers to connect to, comma-separated, such as nats://127.0.0.1:4222"),
    "user": ("NAME", "user name"),
    "password": ("VARIABLE", "environment variable with the user's password"),
    "token": ("VARIABLE", "environment variable with a token, instead of a user"),
    "credsFile": ("FILE", "credentials file (.creds)"),
    "nkeySeedFile": ("FILE", "file with the seed of the user's NKey"),
    "tls": ("BOOL", "true: require TLS (tls:// in a URL does too)"),
    "tlsHandshakeFirst": ("BOOL", "true: start TLS before the server sends INFO"),
    "tlsCaFile": ("FILE", "certificate authorities that may have signed the server's certificate (PEM)"),
    "tlsCertFile": ("FILE", "certificate of this client (PEM)"),
    "tlsKeyFile": ("FILE", "private key of that certificate (PEM)"),
    "domain": ("NAME", "JetStream domain"),
    "connectTimeout": ("SECONDS", "time limit for one connection (3)"),
}


def add_login(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("how to connect")
    for name, (value, text) in LOGIN.items():
        group.add_argument(flag_of(name), dest=name, metavar=value, help=text, required=name == "servers")


def access_of(given: argparse.Namespace) -> Access:
    """The login of the flags. Raises BadOptionError."""
    return parse_options({"streams": "*", "queryName": "backup", **options_given(given, LOGIN)}).access
