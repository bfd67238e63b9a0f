"""Why a handshake failed, in the words of crypto/tls of Go, because operators and tools look for those.

OpenSSL's own text stands where Go has none for the same case.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jetraft.api.plane._secure import Judged
from jetraft.api.tls.identity import fingerprint_texts
from jetraft.api.tls.suites import ALERTS

ALERT_REASONS: Final = 1000  # OpenSSL: SSL_AD_REASON_OFFSET
HANDSHAKE_TYPES: Final = (0x15, 0x16)
NO_CERTIFICATE: Final = "peer did not return a certificate"
VERIFY_FAILED: Final = "certificate verify failed"
TEXTS: Final = {
    NO_CERTIFICATE: "tls: client didn't provide a certificate",
    "no shared cipher": "tls: no cipher suite supported by both client and server",
    "unsupported protocol": "tls: client offered only unsupported versions",
    "no suitable key share": "tls: no ECDHE curve supported by both client and server",
    "no shared groups": "tls: no ECDHE curve supported by both client and server",
    "length mismatch": "local error: tls: error decoding message",
    "bad packet": "local error: tls: error decoding message",
    "packet length too long": "tls: oversized record received",
    "bad record type": "local error: tls: unexpected message",
    "unexpected message": "local error: tls: unexpected message",
    "decryption failed or bad record mac": "local error: tls: bad record MAC",
}
HOSTNAME_MISMATCH: Final = 62
ADDRESS_MISMATCH: Final = 64
EXPIRED: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
WRONG_USE: Final = 26
WRONG_SIGNATURE: Final = 7  # of an issuer that has the name of an authority that is trusted
ED25519_SIGNATURE: Final = "x509: Ed25519 verification failure"
SIGNATURES: Final = ((ec.ECDSA, "x509: ECDSA verification failure"), (object, "crypto/rsa: verification error"))


def quiet(failed: Judged) -> bool:
    """True for what any port scanner causes: it is worth a debug line only."""
    return failed.first_byte is not None and failed.first_byte not in HANDSHAKE_TYPES


def text_of(  # noqa: PLR0911  (a table)
    failed: Judged, *, local: str, remote: str, has_certificates: bool, expected: str = ""
) -> str:
    """The reason, in one line; `local` and `remote` are addresses, `expected` is the name that a server had to have."""
    if quiet(failed):
        return "tls: first record does not look like a TLS handshake"
    if failed.ended:
        return "EOF" if failed.first_byte is None else "unexpected EOF"
    if failed.errno:
        return f"read tcp {local}->{remote}: read: {os.strerror(failed.errno).lower()}"
    if failed.library_text == VERIFY_FAILED:
        names = fingerprint_texts(failed.certificates)
        detail = f" ({'; '.join(names)})" if names else ""
        why = verify_text(failed.verified, failed.certificates, expected)
        return f"tls: failed to verify certificate: x509: {why}{detail}"
    if not has_certificates:
        return "tls: no certificates configured"
    if failed.reason >= ALERT_REASONS:
        alert = failed.reason - ALERT_REASONS
        return f"remote error: tls: {ALERTS.get(alert, f'alert({alert})')}"
    return TEXTS.get(failed.library_text, f"tls: {failed.library_text or 'handshake failed'}")


def verify_text(verified: int, certificates: Sequence[bytes], expected: str) -> str:  # noqa: PLR0911  (a table)
    """Why a certificate was refused (X509_V_ERR_...)."""
    if verified in EXPIRED:
        return f"certificate has expired or is not yet valid: {moment_text(certificates)}"
    if verified in UNKNOWN_AUTHORITY:
        return "certificate signed by unknown authority"
    if verified == WRONG_SIGNATURE and certificates:
        return f"certificate signed by unknown authority{signature_text(certificates[0])}"
    if verified == WRONG_USE:
        return "certificate specifies an incompatible key usage"
    if verified == ADDRESS_MISMATCH and certificates:
        return address_text(certificates[0], expected)
    if verified == HOSTNAME_MISMATCH and certificates:
        return name_text(certificates[0], expected)
    return f"verification failed with error {verified} of OpenSSL"


def names_of(der: bytes, kind: type[x509.DNSName] | type[x509.IPAddress]) -> list[str]:
    """The names of one kind that a certificate is for."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return [str(name) for name in found.get_values_for_type(kind)]


def address_text(der: bytes, expected: str) -> str:
    """The certificate of a server is not for its address."""
    addresses = names_of(der, x509.IPAddress)
    if not addresses:
        return f"cannot validate certificate for {expected} because it doesn't contain any IP SANs"
    return f"certificate is valid for {', '.join(addresses)}, not {expected}"


def name_text(der: bytes, expected: str) -> str:
    """The certificate of a server is not for its name."""
    names = names_of(der, x509.DNSName)
    if not names:
        return f"certificate is not valid for any names, but wanted to match {expected}"
    return f"certificate is valid for {', '.join(names)}, not {expected}"


def signature_text(der: bytes) -> str:
    """Which trusted authority has not signed a certificate that names it as its issuer."""
    certificate = x509.load_der_x509_certificate(der)
    name = next((str(one.value) for one in certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)), "")
    parameters = certificate.signature_algorithm_parameters  # None for Ed25519
    why = next((text for kind, text in SIGNATURES if isinstance(parameters, kind)), "")
    why = ED25519_SIGNATURE if parameters is None else why
    return f' (possibly because of "{why}" while trying to verify candidate authority certificate "{name}")'


def moment_text(certificates: Sequence[bytes]) -> str:
    """`current time ... is after ...` of the first certificate that is not valid now."""
    form, now = "%Y-%m-%dT%H:%M:%SZ", datetime.now(UTC)
    for der in certificates:
        certificate = x509.load_der_x509_certificate(der)
        if now > certificate.not_valid_after_utc:
            return f"current time {now.strftime(form)} is after {certificate.not_valid_after_utc.strftime(form)}"
        if now < certificate.not_valid_before_utc:
            return f"current time {now.strftime(form)} is before {certificate.not_valid_before_utc.strftime(form)}"
    return f"current time {now.strftime(form)}"
