"""Certificates for tests: an authority, and what it signs, as PEM files in a directory."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID, ObjectIdentifier

from tests.harness.ports import HOST

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
YEAR = dt.timedelta(days=365)
RSA_BITS = 2048
RSA_EXPONENT = 65537


@attrs.frozen(kw_only=True)
class Signed:
    """A certificate with its key: PEM files."""

    cert_file: Path
    key_file: Path
    certificate: x509.Certificate

    @property
    def block(self) -> str:
        """The two keys of a `tls` block."""
        return f'cert_file: "{self.cert_file}"\nkey_file: "{self.key_file}"\n'


@attrs.frozen(kw_only=True)
class Authority:
    """Signs certificates; `ca_file` is what trusts them."""

    directory: Path
    name: str
    ca_file: Path
    certificate: x509.Certificate
    key: Key

    @classmethod
    def make(cls, directory: Path, name: str = "test ca") -> Self:
        """A new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = build(named(name), named(name), key, key, is_authority=True)
        path = directory / f"{name.replace(' ', '-')}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(directory=directory, name=name, ca_file=path, certificate=certificate, key=key)

    def sign(  # noqa: PLR0913  (each is an option of a certificate, by name)
        self,
        label: str,
        *,
        subject: x509.Name | None = None,
        names: Sequence[x509.GeneralName] = (),
        uses_rsa: bool = False,
        age: dt.timedelta = dt.timedelta(days=1),
        lasts: dt.timedelta = YEAR,
        uses: Sequence[ObjectIdentifier] = (),
    ) -> Signed:
        """A certificate for `label`, valid for `lasts` from `age` ago."""
        key = rsa.generate_private_key(RSA_EXPONENT, RSA_BITS) if uses_rsa else ec.generate_private_key(ec.SECP256R1())
        certificate = build(
            subject or named(label),
            self.certificate.subject,
            key,
            self.key,
            names=names,
            age=age,
            lasts=lasts,
            uses=uses,
        )
        cert_file, key_file = self.directory / f"{label}.pem", self.directory / f"{label}-key.pem"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key_file.write_bytes(key.private_bytes(*form))
        return Signed(cert_file=cert_file, key_file=key_file, certificate=certificate)

    def server(self, label: str = "server", *, uses_rsa: bool = False) -> Signed:
        """A certificate for the loopback addresses."""
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
        return self.sign(label, names=names, uses_rsa=uses_rsa)

    def client_context(self, signed: Signed | None = None) -> ssl.SSLContext:
        """What a client needs that trusts this authority, and shows a certificate when it has one."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if signed is not None:
            context.load_cert_chain(signed.cert_file, signed.key_file)
        return context


def named(common_name: str, *others: tuple[ObjectIdentifier, str]) -> x509.Name:
    """A subject."""
    attributes = [(NameOID.COMMON_NAME, common_name), *others]
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def build(  # noqa: PLR0913
    subject: x509.Name,
    issuer: x509.Name,
    key: Key,
    signer: Key,
    *,
    names: Sequence[x509.GeneralName] = (),
    is_authority: bool = False,
    age: dt.timedelta = dt.timedelta(days=1),
    lasts: dt.timedelta = YEAR,
    uses: Sequence[ObjectIdentifier] = (),
) -> x509.Certificate:
    """One certificate."""
    begin = dt.datetime.now(dt.UTC) - age
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + lasts)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(signer, hashes.SHA256())
