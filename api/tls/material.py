"""Certificates, keys and authorities read from files, with nats-server's words for what is wrong with them.

Everything becomes DER here; keys stay in the value that holds them and are in no text.
"""

import ipaddress
from collections.abc import Iterator
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from jetraft.api.options.tls import CertificateFiles, TlsError, TlsOptions
from jetraft.api.tls._context import OPENSSL, ContextError, TlsContext, offers_cipher, offers_group
from jetraft.api.tls.suites import CIPHERS, GROUPS, INSECURE

BEGIN, END = b"-----BEGIN ", b"-----END "


@attrs.frozen(kw_only=True)
class Pair:
    """One certificate with its chain, and its key, as DER."""

    chain: tuple[bytes, ...]
    key: bytes = attrs.field(repr=False)
    not_after: str  # of the first, as Go prints a time


def blocks(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The PEM blocks of a file: kind, and the block as text."""
    at = 0
    while (start := data.find(BEGIN, at)) >= 0:
        kind_end = data.find(b"-----", start + len(BEGIN))
        end = data.find(END, start)
        if kind_end < 0 or end < 0:
            return
        at = data.find(b"-----", end + len(END))
        at = len(data) if at < 0 else at + 5
        yield data[start + len(BEGIN) : kind_end].decode("ascii", "replace"), data[start:at] + b"\n"


def read(path: str) -> bytes:
    """A file's bytes. Raises TlsError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsError(f"open {path}: {(error.strerror or '').lower()}") from error


def load_pair(files: CertificateFiles) -> Pair:
    """A certificate and the key that belongs to it. Raises TlsError with what crypto/tls of Go says."""
    cert_data, key_data = read(files.cert_file), read(files.key_file)
    found = list(blocks(cert_data))
    chain = [text for kind, text in found if kind == "CERTIFICATE"]
    if not chain:
        if not found:
            raise TlsError("tls: failed to find any PEM data in certificate input")
        if len(found) == 1 and found[0][0].endswith("PRIVATE KEY"):
            raise TlsError(
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
                "PEM inputs may have been switched"
            )
        kinds = " ".join(kind for kind, _ in found)
        raise TlsError(f'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of '
                       f"the following types: [{kinds}]")  # fmt: skip
    found = list(blocks(key_data))
    key_text = next((text for kind, text in found if kind == "PRIVATE KEY" or kind.endswith(" PRIVATE KEY")), None)
    if key_text is None:
        if not found:
            raise TlsError("tls: failed to find any PEM data in key input")
        if len(found) == 1 and found[0][0] == "CERTIFICATE":
            raise TlsError("tls: found a certificate rather than a key in the PEM for the private key")
        kinds = " ".join(kind for kind, _ in found)
        raise TlsError(f'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping '
                       f"PEM blocks of the following types: [{kinds}]")  # fmt: skip
    try:
        certificates = [x509.load_pem_x509_certificate(text) for text in chain]
    except ValueError:
        raise TlsError("x509: malformed certificate") from None
    try:
        key = serialization.load_pem_private_key(key_text, password=None)
    except (ValueError, TypeError):  # TypeError: it is encrypted
        raise TlsError("tls: failed to parse private key") from None
    public = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*public) != certificates[0].public_key().public_bytes(*public):
        raise TlsError("tls: private key does not match public key")
    return Pair(
        chain=tuple(certificate.public_bytes(Encoding.DER) for certificate in certificates),
        key=key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        not_after=certificates[0].not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def load_pairs(options: TlsOptions) -> tuple[Pair, ...]:
    """All certificates of a block. Raises TlsError."""
    pairs = []
    for number, files in enumerate(options.certificates, start=1):
        try:
            pairs.append(load_pair(files))
        except TlsError as error:
            count = f" {number}/{len(options.certificates)}" if options.is_list else ""
            raise TlsError(f"error parsing X509 certificate/key pair{count}: {error}") from error
    return tuple(pairs)


def load_authorities(path: str) -> tuple[bytes, ...]:
    """The certificates of a `ca_file`; those that cannot be read are passed over, as Go does. Raises TlsError."""
    if not path:
        return ()
    found = []
    for kind, text in blocks(read(path)):
        if kind == "CERTIFICATE":
            try:
                found.append(x509.load_pem_x509_certificate(text).public_bytes(Encoding.DER))
            except ValueError:
                continue
    if not found:
        raise TlsError("failed to parse root ca certificate")
    return tuple(found)


def ciphers_of(options: TlsOptions) -> bytes:
    """OpenSSL's list for the suites of TLS 1.2; those of 1.3 are not chosen, as in Go. Raises TlsError."""
    insecure = [name for name in options.cipher_suites if name in INSECURE]
    if insecure and not options.allow_insecure_cipher_suites:
        listed = ",".join(insecure)
        raise TlsError(f"insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: {listed}")
    wanted = options.cipher_suites or tuple(name for name in CIPHERS if name not in INSECURE)
    names = [CIPHERS[name] for name in wanted if CIPHERS.get(name)]
    for name in options.cipher_suites:
        if name in CIPHERS and not (CIPHERS[name] and offers_cipher(CIPHERS[name].encode())):
            raise TlsError(f"cipher {name} is not offered by {OPENSSL}")
    return ":".join(names).encode()


def groups_of(options: TlsOptions) -> bytes:
    """OpenSSL's list of groups; those that it does not have are left out while one remains. Raises TlsError."""
    groups = [GROUPS[name] for name in options.curve_preferences]
    known = [name for name in groups if offers_group(name.encode())]
    if groups and not known:
        raise TlsError(f"none of the curve preferences {' '.join(options.curve_preferences)} is offered by {OPENSSL}")
    return ":".join(known).encode()


@attrs.frozen(kw_only=True)
class Material:
    """The material of a listener: the context for its connections, and when its first certificate ends."""

    context: TlsContext
    has_certificates: bool
    not_after: str


def is_address(name: str) -> bool:
    """Whether a server is named by its address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def load(options: TlsOptions, server_name: str | None = None) -> Material:
    """Read every file and make the context. Raises TlsError with one line.

    `server_name` is the server that connections are made to, which has to show a certificate for it unless the options
    are `insecure`; None: the context is a listener's.
    """
    pairs, authorities = load_pairs(options), load_authorities(options.ca_file)
    ciphers, groups = ciphers_of(options), groups_of(options)
    try:
        context = TlsContext(
            certificates=[(pair.chain, pair.key) for pair in pairs],
            authorities=authorities,
            system_authorities=not options.ca_file,
            verify=options.verify if server_name is None else not options.insecure,
            tls13_only=options.min_version == "1.3" or not ciphers,
            ciphers=ciphers,
            groups=groups,
            server_name=None if server_name is None else server_name.encode(),
            is_address=server_name is not None and is_address(server_name),
        )
    except ContextError as error:
        raise TlsError(str(error)) from error
    return Material(context=context, has_certificates=bool(pairs), not_after=pairs[0].not_after if pairs else "")
