"""The identity in a client's certificate, and which configured user that is (`verify_and_map`).

As server/auth.go of nats-server: addresses, then DNS names, then URIs, then the subject. A subject is written as
crypto/x509 of Go writes it (`CN=derek,O=Synadia,C=US`); a user whose name has the same parts in another order is meant
too.
"""

import hashlib
from collections.abc import Collection, Iterable
from typing import Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

SHORT: Final = {
    NameOID.COUNTRY_NAME: "C", NameOID.ORGANIZATION_NAME: "O", NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.LOCALITY_NAME: "L", NameOID.STATE_OR_PROVINCE_NAME: "ST", NameOID.STREET_ADDRESS: "STREET",
    NameOID.POSTAL_CODE: "POSTALCODE", NameOID.COMMON_NAME: "CN", NameOID.SERIAL_NUMBER: "SERIALNUMBER",
}  # fmt: skip
DOMAIN: Final = "DC"
ONCE: Final = frozenset({"CN", "SERIALNUMBER"})  # of several Go keeps the last one
SPECIAL: Final = frozenset(',+"\\<>;')
STRING_TAG: Final = 0x13
Part = tuple[str, str]


@attrs.frozen(kw_only=True)
class TlsIdentity:
    """The owner in a certificate that was verified."""

    subject: str = ""  # as Go writes it
    parts: tuple[Part, ...] = ()  # of the subject, in the order of the certificate
    emails: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def escaped(value: str) -> str:
    """A value of a name as RFC 2253 wants it."""
    text = "".join("\\" + char if char in SPECIAL else char for char in value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(value) > 1 else text


def subject_text(name: x509.Name) -> str:
    """A name as pkix.Name.String of Go writes it: the parts that Go knows in its own order, then others as numbers."""
    known: dict[str, list[str]] = {}
    others: list[str] = []
    for attribute in name:
        short = SHORT.get(attribute.oid)
        value = attribute.value if isinstance(attribute.value, str) else attribute.value.decode("latin-1")
        if short is not None:
            known.setdefault(short, []).append(value)
        else:
            raw = value.encode()
            tag = attribute._type.value if hasattr(attribute, "_type") else STRING_TAG  # noqa: SLF001  not offered
            others.append(f"{attribute.oid.dotted_string}=#{bytes([tag, len(raw) & 0x7F]).hex()}{raw.hex()}")
    texts = []
    for short in ("C", "O", "OU", "L", "ST", "STREET", "POSTALCODE", "CN", "SERIALNUMBER"):
        values = known.get(short, [])[-1:] if short in ONCE else known.get(short, [])
        if values:
            texts.append("+".join(f"{short}={escaped(value)}" for value in values))
    return ",".join(reversed([*others, *texts]))


def identity_of(certificate: x509.Certificate) -> TlsIdentity:
    """The names of a certificate; one whose alternative names cannot be read has none."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError, x509.UnsupportedGeneralNameType):
        found = x509.SubjectAlternativeName([])
    parts = []
    for attribute in certificate.subject:
        short = SHORT.get(attribute.oid) or (DOMAIN if attribute.oid == NameOID.DOMAIN_COMPONENT else "")
        value = attribute.value if isinstance(attribute.value, str) else attribute.value.decode("latin-1")
        parts.append((short or attribute.oid.dotted_string, value))
    return TlsIdentity(
        subject=subject_text(certificate.subject),
        parts=tuple(parts),
        emails=tuple(found.get_values_for_type(x509.RFC822Name)),
        dns_names=tuple(found.get_values_for_type(x509.DNSName)),
        uris=tuple(found.get_values_for_type(x509.UniformResourceIdentifier)),
    )


def read_identity(der: bytes) -> TlsIdentity:
    """The same of DER. Raises ValueError."""
    return identity_of(x509.load_der_x509_certificate(der))


def parse_parts(text: str) -> tuple[Part, ...] | None:
    """The parts of a name such as `CN=derek,O=Synadia`, or None when it is not one."""
    parts: list[Part] = []
    piece = ""
    chars = iter(text)
    for char in chars:
        if char == "\\":
            piece += char + next(chars, "")
        elif char in ",+;":
            parts.append(_part(piece))
            piece = ""
        else:
            piece += char
    parts.append(_part(piece))
    return None if any(not key for key, _ in parts) else tuple(parts)


def _part(piece: str) -> Part:
    key, equals, value = piece.strip().partition("=")
    chars = iter(value.strip())
    plain = "".join(next(chars, "") if char == "\\" else char for char in chars)
    return (key.strip().upper(), plain) if equals else ("", "")


def map_user(identity: TlsIdentity, names: Collection[str]) -> str | None:
    """The configured user whom a certificate is for, or None."""
    literal: Iterable[str] = (*identity.emails, *identity.dns_names, *identity.uris)
    for name in literal:
        if name in names:
            return name
    wanted = sorted(identity.parts)
    for name in names:
        parts = parse_parts(name) if "=" in name else None  # most users are not named like a subject
        if wanted and parts is not None and sorted(parts) == wanted:
            return name
    return identity.subject if identity.subject and identity.subject in names else None


def fingerprint_texts(certificates: Iterable[bytes]) -> list[str]:
    """`subject SHA-256: digest` of each, for the line that says who was refused."""
    found = []
    for der in certificates:
        try:
            subject = subject_text(x509.load_der_x509_certificate(der).subject)
        except ValueError:
            subject = ""
        found.append(f"{subject} SHA-256: {hashlib.sha256(der).hexdigest()}")
    return found


def peer_rows(certificates: Iterable[bytes]) -> list[dict[str, str]]:
    """The part of /connz about a client's certificates."""
    rows = []
    for der in certificates:
        certificate = x509.load_der_x509_certificate(der)
        rows.append(
            {
                "subject": subject_text(certificate.subject),
                "spki_sha256": hashlib.sha256(public_key_info(certificate)).hexdigest(),
                "cert_sha256": hashlib.sha256(der).hexdigest(),
            }
        )
    return rows


def public_key_info(certificate: x509.Certificate) -> bytes:
    """The SubjectPublicKeyInfo of a certificate, as DER."""
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
