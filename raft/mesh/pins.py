"""The name of a certificate in `pinned_certs`: the digest of its public key. Pure."""

import hashlib

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_der_x509_certificate


def key_digest(certificate: bytes) -> str:
    """The SHA-256 of the key of a certificate in DER, in hexadecimal digits; empty for what is no certificate."""
    try:
        key = load_der_x509_certificate(certificate).public_key()
    except ValueError:
        return ""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
