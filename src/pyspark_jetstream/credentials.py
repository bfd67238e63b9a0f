"""Login by NKey and by token (JWT): what nats.go does with `.creds` files and seeds.

A seed signs the nonce of the server's INFO with Ed25519. The signature comes from the package `cryptography` or
`PyNaCl`, whichever is installed; neither is needed for other logins. A file is read at each connection, so a new one is
used; a task on a machine without the file uses the text that the driver read.
Source: nkeys/creds_utils.go (decorated files), nkeys/strkey.go (base32 with a CRC-16), nats.go (UserCredentials, Nkey).
"""

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from pyspark_jetstream.errors import BadOptionError

SEED_PREFIX = 18 << 3
USER_PREFIX = 20 << 3
SEED_BYTES = 32
CRC_BYTES = 2
_DECORATED = re.compile(r"\s*-{3,}[^\n]*-{3,}\r?\n(.+?)\r?\n\s*-{3,}[^\n]*-{3,}\r?\n?")
_SEED_LINE = re.compile(r"^\s*(S[A-Z][A-Z2-7]{56})\s*$", re.MULTILINE)


@attrs.frozen(kw_only=True, slots=True)
class Credentials:
    """A file of credentials or a seed, or both as text. Nothing of it is ever shown but the name of the file."""

    path: str | None = None
    text: str = attrs.field(default="", repr=False)
    jwt: str | None = attrs.field(default=None, repr=False)

    def login(self, nonce: str) -> dict[str, str]:
        """Return the fields of CONNECT for this nonce. Raises BadOptionError."""
        text = self.text
        if self.path is not None and Path(self.path).is_file():
            text = Path(self.path).read_text(encoding="utf-8", errors="replace")
        what = f"file {self.path!r}" if self.path else "option 'nkeySeed'"
        jwt = self.jwt or token_of(text)
        public, signature = sign(seed_of(text, what), nonce.encode(), what)
        return {"jwt": jwt, "sig": signature} if jwt else {"nkey": public, "sig": signature}


def credentials_of(parsed: Mapping[str, object]) -> Credentials | None:
    """Return the credentials of parsed options; None if there are none. Raises BadOptionError."""
    path, seed, jwt = (parsed.get(name) for name in ("nkeyseedfile", "nkeyseed", "jwt"))
    if jwt is not None and path is None and seed is None:
        raise BadOptionError("option 'jwt' needs 'nkeySeed' or 'nkeySeedFile', which sign for it")
    path = parsed.get("credsfile") or path
    if path is None and seed is None:
        return None
    text = str(seed) if path is None else Path(str(path)).read_text(encoding="utf-8", errors="replace")
    what = f"file {path!r}" if path else "option 'nkeySeed'"
    if parsed.get("credsfile") and not token_of(text):
        raise BadOptionError(f"option 'credsFile': {what} has no token (JWT)")
    seed_of(text, what)
    return Credentials(path=None if path is None else str(path), text=text, jwt=None if jwt is None else str(jwt))


def token_of(text: str) -> str | None:
    """Return the token of a file of credentials: its first decorated part, if that is none of seeds."""
    found = _DECORATED.search(text)
    return found[1].strip() if found and found[1].count(".") == 2 else None  # noqa: PLR2004  (header, claims, signature)


def seed_of(text: str, what: str) -> bytes:
    """Return the 32 bytes of the seed in a file, decorated or a line of its own. Raises BadOptionError."""
    found = _SEED_LINE.search(text)
    if found is None:
        raise BadOptionError(f"{what} has no NKey seed")
    try:
        raw = base64.b32decode(found[1] + "=" * (-len(found[1]) % 8))
    except binascii.Error:
        raise BadOptionError(f"{what} has a damaged NKey seed") from None
    kind = (raw[0] & 7) << 5 | raw[1] >> 3
    checksum = binascii.crc_hqx(raw[:-CRC_BYTES], 0).to_bytes(CRC_BYTES, "little")
    if raw[0] & 0xF8 != SEED_PREFIX or len(raw) != 2 + SEED_BYTES + CRC_BYTES or checksum != raw[-CRC_BYTES:]:
        raise BadOptionError(f"{what} has a damaged NKey seed")
    if kind != USER_PREFIX:
        raise BadOptionError(f"{what} has the seed of an account, operator or server, not of a user")
    return raw[2:-CRC_BYTES]


def sign(seed: bytes, message: bytes, what: str) -> tuple[str, str]:
    """Return the public key as an NKey and the signature as CONNECT has it. Raises BadOptionError without a library."""
    try:
        public, signature = _sign_with_cryptography(seed, message)
    except ImportError:
        try:
            public, signature = _sign_with_pynacl(seed, message)
        except ImportError:
            raise BadOptionError(
                f"{what} needs a package that signs with Ed25519: pip install cryptography (or PyNaCl), on the driver "
                "and on the executors"
            ) from None
    return public_nkey(public), base64.urlsafe_b64encode(signature).rstrip(b"=").decode()


def public_nkey(public: bytes) -> str:
    """Return the text of a user's public key."""
    body = bytes([USER_PREFIX]) + public
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(CRC_BYTES, "little")).rstrip(b"=").decode()


def _sign_with_cryptography(seed: bytes, message: bytes) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  (optional)

    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.public_key().public_bytes_raw(), key.sign(message)


def _sign_with_pynacl(seed: bytes, message: bytes) -> tuple[bytes, bytes]:
    from nacl.signing import SigningKey  # noqa: PLC0415  (optional)

    key = SigningKey(seed)
    return bytes(key.verify_key), bytes(key.sign(message).signature)
