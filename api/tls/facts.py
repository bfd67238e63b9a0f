"""Facts of TLS in INFO and the monitoring pages; names and conditions are nats-server's."""

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from jetraft.api.options.tls import TlsOptions
from jetraft.store.model.clock import NS_PER_S


@attrs.frozen(kw_only=True)
class TlsState:
    """The outcome of a handshake."""

    version: str  # "1.3"
    cipher: str
    first: bool  # before INFO
    certificates: tuple[bytes, ...] = ()  # the client's, verified, its own first


def mapped_user(state: TlsState | None, names: Collection[str]) -> str | None:
    """The configured user whom a client's certificate names (`verify_and_map`)."""
    if state is None or not state.certificates:
        return None
    from jetraft.api.tls.identity import map_user, read_identity  # noqa: PLC0415  only servers that map pay for it

    return map_user(read_identity(state.certificates[0]), names)


def info_fields(options: TlsOptions, state: TlsState | None) -> Mapping[str, Any]:
    """INFO's fields; who began with the handshake is told that TLS is required, which is true of that connection."""
    fields: dict[str, Any] = {}
    if not options.allow_non_tls or (state is not None and state.first):
        fields["tls_required"] = True
    if options.verify:
        fields["tls_verify"] = True
    if options.allow_non_tls:
        fields["tls_available"] = True
    return fields


def varz_head(options: TlsOptions | None) -> Mapping[str, Any]:
    """Whether clients have to use TLS."""
    if options is None:
        return {}
    fields = {"tls_required": not options.allow_non_tls, "tls_verify": options.verify}
    return {name: value for name, value in fields.items() if value}


def varz_limits(options: TlsOptions | None, not_after: str) -> Mapping[str, Any]:
    """Seconds for a handshake, and when the certificate ends."""
    if options is None:
        return {}
    seconds = options.timeout_ns / NS_PER_S
    fields: dict[str, Any] = {"tls_timeout": int(seconds) if seconds.is_integer() else seconds}
    return fields | ({"tls_cert_not_after": not_after} if not_after else {})


def connz_fields(state: TlsState, *, auth: bool) -> Mapping[str, Any]:
    """A row of /connz."""
    fields: dict[str, Any] = {"tls_version": state.version, "tls_cipher_suite": state.cipher}
    if auth and state.certificates:
        from jetraft.api.tls.identity import peer_rows  # noqa: PLC0415

        fields["tls_peer_certs"] = peer_rows(state.certificates)
    if state.first:
        fields["tls_first"] = True
    return fields
