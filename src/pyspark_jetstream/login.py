"""How a connection logs in: the fields of CONNECT, the TLS context, and what a refusal is."""

import socket
import ssl
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from pyspark_jetstream.errors import LoginRefusedError, ServerError
from pyspark_jetstream.options import Access

# What a server says of a login that it refuses, also when a token has expired or the user may not use this connection.
REFUSALS = ("authorization violation", "authentication", "permissions violation")


def refused(url: str, reason: str) -> ServerError:
    """Return the error for -ERR."""
    kind = LoginRefusedError if any(word in reason.lower() for word in REFUSALS) else ServerError
    return kind(f"{url}: the server sent -ERR {reason}")


def connect_options(access: Access, nonce: str) -> dict[str, Any]:
    """Return the JSON of CONNECT. Raises BadOptionError for credentials that cannot be used."""
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": "1",
        "name": access.name,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "echo": True,
    }
    if access.user is not None:
        options |= {"user": access.user, "pass": access.password}
    if access.token is not None:
        options["auth_token"] = access.token
    if access.credentials is not None:
        options |= access.credentials.login(nonce)
    return options


def secured(plain: socket.socket, url: str, access: Access) -> ssl.SSLSocket:
    """Return the socket after the TLS handshake. Raises OSError."""
    return tls_context(access).wrap_socket(plain, server_hostname=certificate_name(url, access))


def certificate_name(url: str, access: Access) -> str:
    """Return the host name that the server's certificate must have.

    The cluster mostly reports IP addresses, which certificates seldom contain: for these it is the first server's name.
    """
    host = urlsplit(url).hostname or ""
    first = urlsplit(access.servers[0]).hostname or ""
    return host if url in access.servers or not is_address(host) else first


def is_address(host: str) -> bool:
    """Whether the host is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def tls_context(access: Access) -> ssl.SSLContext:
    """Return the TLS context: the system's authorities or the configured one, and the client certificate, if any."""
    context = ssl.create_default_context(cafile=access.tls_ca_file)
    if access.tls_cert_file is not None:
        context.load_cert_chain(access.tls_cert_file, access.tls_key_file)
    return context
