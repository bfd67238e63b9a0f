"""The options of a `tls` block, as one frozen value. Names are nats-server's keys with the unit last."""

import attrs

from jetraft.store.model.clock import NS_PER_S

TIMEOUT_NS = 2 * NS_PER_S
FIRST_DELAY_NS = 50_000_000  # of `handshake_first: auto`


class TlsError(ValueError):
    """A file of a `tls` block cannot be used; the text is one line in nats-server's words."""


@attrs.frozen(kw_only=True)
class CertificateFiles:
    """A certificate, with the chain behind it, and its key: PEM files."""

    cert_file: str
    key_file: str


@attrs.frozen(kw_only=True)
class TlsOptions:
    """`tls { ... }` of a listener, or of connections that this server makes."""

    certificates: tuple[CertificateFiles, ...] = ()
    is_list: bool = False  # they were given as `certificates [...]`, which the texts of errors count
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    timeout_ns: int = TIMEOUT_NS
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[str, ...] = ()
    min_version: str = "1.2"
    handshake_first: bool = False
    first_delay_ns: int = 0  # with handshake_first: INFO is sent when nothing has come for so long; 0: never
    pinned_certs: frozenset[str] = frozenset()
    connection_rate_limit: int = 0  # handshakes begun in a second; 0: no limit
    allow_insecure_cipher_suites: bool = False
    allow_non_tls: bool = False
    insecure: bool = False  # of a connection that this server makes: no certificate is checked
