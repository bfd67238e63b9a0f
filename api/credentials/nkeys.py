"""Public keys of operators, accounts, users and servers as text, and their signatures.

The text is base32 of a prefix, 32 bytes of Ed25519 and a CRC-16, as in github.com/nats-io/nkeys (strkey.go). Pure.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

PREFIX_ACCOUNT: Final = 0  # the text begins with A
PREFIX_OPERATOR: Final = 14 << 3  # O
PREFIX_SERVER: Final = 13 << 3  # N
PREFIX_USER: Final = 20 << 3  # U
PREFIX_CURVE: Final = 23 << 3  # X: X25519, not Ed25519
PREFIX_CLUSTER: Final = 2 << 3  # C
PROXY_PREFIXES: Final = (
    PREFIX_ACCOUNT, PREFIX_OPERATOR, PREFIX_SERVER, PREFIX_USER, PREFIX_CLUSTER,
)  # fmt: skip
KEY_BYTES: Final = 32
CRC_BYTES: Final = 2
TEXT_CHARS: Final = 56  # base32 of 35 bytes
SIGNATURE_BYTES: Final = 64
# A number to the base of 32 in Python's digits: base64.b32decode, a loop in Python, takes four times as long.
TEXT: Final = re.compile(rf"[A-Z2-7]{{{TEXT_CHARS}}}", re.ASCII)
DIGITS: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "0123456789abcdefghijklmnopqrstuv")


def public_key(text: str, *prefixes: int) -> bytes | None:
    """The 32 bytes of a public key with one of these prefixes, or None when the text is none."""
    if not TEXT.fullmatch(text):
        return None
    raw = int(text.translate(DIGITS), 32).to_bytes(1 + KEY_BYTES + CRC_BYTES, "big")
    body, crc = raw[:-CRC_BYTES], int.from_bytes(raw[-CRC_BYTES:], "little")
    if body[0] not in prefixes or binascii.crc_hqx(body, 0) != crc:
        return None
    return body[1:]


def public_user_key(text: str) -> bytes | None:
    """The 32 bytes of a public user key, or None when the text is none."""
    return public_key(text, PREFIX_USER)


def is_account_key(text: str) -> bool:
    """Whether a text is the public key of an account."""
    return public_key(text, PREFIX_ACCOUNT) is not None


def is_operator_key(text: str) -> bool:
    """Whether a text is the public key of an operator."""
    return public_key(text, PREFIX_OPERATOR) is not None


def key_text(prefix: int, raw: bytes) -> str:
    """A public key as text."""
    body = bytes([prefix]) + raw
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(CRC_BYTES, "little")).decode()


def decode_signature(text: str) -> bytes | None:
    """The signature of a CONNECT: base64 of the URL alphabet without padding, or the plain one with it."""
    try:
        if len(text) % 4 == 0 and (text.endswith("=") or "+" in text or "/" in text):
            return base64.b64decode(text, validate=True)
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def verified(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the owner of a public key signed these bytes."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  servers without such users do not pay for it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def signed_by_one(keys: Iterable[str], signature: str, nonce: bytes) -> str:
    """Which of some public keys signed a nonce; empty: none."""
    raw = decode_signature(signature)
    for text in keys if raw is not None else ():
        key = public_key(text, *PROXY_PREFIXES)
        if key is not None and raw is not None and verified(key, raw, nonce):
            return text
    return ""


def signed(nkey: str, signature: str, nonce: bytes) -> bool:
    """Whether the owner of a public user key signed a nonce; the signature is text, as a CONNECT has it."""
    key, raw = public_user_key(nkey), decode_signature(signature)
    return key is not None and raw is not None and verified(key, raw, nonce)
