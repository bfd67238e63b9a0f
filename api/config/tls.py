"""The `tls` block of a listener: keys in, one `TlsOptions` out, its files looked at. Texts are nats-server's.

`ca_certs_match` is read and passed over, and `insecure` has no effect where this server is the one that accepts.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from jetraft.api.config.blocks import PlacedError
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import duration_ns
from jetraft.api.options.tls import FIRST_DELAY_NS, CertificateFiles, TlsOptions
from jetraft.api.tls.suites import CIPHERS, GROUPS, TLS13
from jetraft.store.model.clock import NS_PER_S

FIRST_WORDS = {"on": True, "true": True, "off": False, "false": False}
SHA256_HEX = re.compile(r"[a-f0-9]{64}")
PINNED = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
Found = dict[str, Any]
Read = Callable[[Found, str, Any], None]


def wrong(text: str) -> OptionsError:
    """An error of this block."""
    return OptionsError(f"error parsing tls config, {text}")


def filename(found: Found, key: str, value: object) -> None:
    """A path."""
    if not isinstance(value, str):
        raise wrong(f"expected '{key}' to be filename")
    found[key] = value


def boolean(found: Found, key: str, value: object) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(f"expected '{key}' to be a boolean")
    found[key] = value


def known_urls(_found: Found, key: str, value: object) -> None:
    """A check of the peers' names that only links between servers can make."""
    boolean({}, key, value)
    if value:
        raise OptionsError("verify_cert_and_check_known_urls not supported in this context")


def ignored(_found: Found, _key: str, _value: object) -> None:
    """Keys without a meaning for a server on this system."""


def refused(_found: Found, key: str, value: object) -> None:
    """Checks of certificates with their issuer over the network: refused, because passing over them lets people in."""
    if value:
        raise OptionsError(f'"{key}" in tls is not served by jetraft yet')


def cert_store(_found: Found, _key: str, _value: object) -> None:
    """The certificate store of Windows."""
    raise OptionsError("cert store type not implemented")


def timeout(found: Found, _key: str, value: object) -> None:
    """Seconds, or a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong("'timeout' wrong type")
    try:
        found["timeout_ns"] = duration_ns("timeout", value)
    except OptionsError:
        raise wrong(f"'timeout' time: invalid duration \"{value}\"") from None


def names(known: Mapping[str, Any] | frozenset[str], word: str) -> Read:
    """A list of names that there are."""

    def read(found: Found, key: str, value: object) -> None:
        if not isinstance(value, list):
            raise wrong(f"expected '{key}' to be a list")
        if not value:
            raise wrong(f"'{key}' cannot be empty")
        for name in value:
            if not isinstance(name, str) or name not in known:
                raise OptionsError(f"unrecognized {word} {name}")
        found[key] = tuple(value)

    return read


def min_version(found: Found, key: str, value: object) -> None:
    """1.2 or 1.3."""
    if not isinstance(value, str):
        raise OptionsError(f"error parsing tls config: '{key}' wrong type: {value}")
    if value in ("1.0", "1.1"):
        raise OptionsError(f"error parsing tls config: unsupported TLS version: TLS {value}")
    if value not in ("1.2", "1.3"):
        raise OptionsError(f"error parsing tls config: unknown version: {value}")
    found[key] = value


def handshake_first(found: Found, key: str, value: object) -> None:
    """`true`, `false`, `auto` or how long a client has for it."""
    found["first_delay_ns"] = 0
    if isinstance(value, bool):
        found["handshake_first"] = value
        return
    if not isinstance(value, str):
        raise OptionsError(f'field "{key}" should be a boolean or a string, got {value!r}')
    word = value.strip().lower()
    if word in FIRST_WORDS:
        found["handshake_first"] = FIRST_WORDS[word]
        return
    found["handshake_first"] = True
    if word == "auto":
        found["first_delay_ns"] = FIRST_DELAY_NS
        return
    try:
        found["first_delay_ns"] = duration_ns(key, word.removeprefix("-")) if not word.startswith("-") else 0
    except OptionsError:
        raise OptionsError(f'field "{key}"\'s value "{value}" is invalid') from None


def pinned_certs(found: Found, key: str, value: object) -> None:
    """Keys that clients may have, and no others."""
    if not isinstance(value, list):
        raise wrong(f"expected '{key}' to be a list of {PINNED}")
    for pin in value:
        if not isinstance(pin, str) or not SHA256_HEX.fullmatch(pin.lower()):
            raise wrong(f"'{key}' key {pin} does not look like {PINNED}")
    found[key] = frozenset(pin.lower() for pin in value)


def rate_limit(found: Found, key: str, value: object) -> None:
    """Handshakes in a second."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(f"'{key}' wrong type")
    found[key] = max(0, value)


def certificates(found: Found, _key: str, value: object) -> None:
    """Several certificates, of which each client gets the one for the name it asks for."""
    if not isinstance(value, list):
        raise OptionsError("error parsing certificates config: expected a list")
    pairs = []
    for item in value:
        if not isinstance(item, Table):
            raise OptionsError("error parsing certificates config: expected maps")
        files: Found = {}
        for key, given in item.items():
            if not isinstance(given, str):
                raise OptionsError(f"error parsing certificates config: unsupported type of '{key}'")
            if key not in ("cert_file", "key_file"):
                raise OptionsError(f'error parsing tls certs config, unknown field "{key}"')
            files[key] = given
        if len(files) != 2:  # noqa: PLR2004
            raise OptionsError(
                "error parsing certificates config: both 'cert_file' and 'cert_key' options are required"
            )
        pairs.append(CertificateFiles(**files))
    found["certificates"] = tuple(pairs)


KEYS: Mapping[str, Read] = {
    "cert_file": filename,
    "key_file": filename,
    "ca_file": filename,
    "insecure": boolean,
    "verify": boolean,
    "verify_and_map": boolean,
    "verify_cert_and_check_known_urls": known_urls,
    "allow_insecure_cipher_suites": boolean,
    "cipher_suites": names(frozenset({*CIPHERS, *TLS13}), "cipher"),
    "curve_preferences": names(GROUPS, "curve preference"),
    "timeout": timeout,
    "connection_rate_limit": rate_limit,
    "pinned_certs": pinned_certs,
    "min_version": min_version,
    **dict.fromkeys(("handshake_first", "first", "immediate"), handshake_first),
    **dict.fromkeys(("certs", "certificates"), certificates),
    "ca_certs_match": ignored,
    "ocsp_peer": refused,
    **dict.fromkeys(("cert_store", "cert_match_by", "cert_match", "cert_match_skip_invalid"), cert_store),
}


def tls_options(block: object, keys: Mapping[str, Read] = KEYS) -> TlsOptions:
    """The options of a block. Raises OptionsError, with the place of the key where it is one key's."""
    if not isinstance(block, Table):
        raise OptionsError(f"expected tls to be a map, got {block!r}")
    found: Found = {}
    for key, value in block.items():
        read = keys.get(key.lower())
        try:
            if read is None:
                raise wrong(f'unknown field "{key}"')
            read(found, key.lower(), value)
        except PlacedError:
            raise
        except OptionsError as error:
            raise PlacedError(f"{block.place(key)}: {error}") from error
    return combined(found)


def combined(found: Found) -> TlsOptions:
    """One value of what the keys said, where they do not contradict each other."""
    cert_file, key_file = found.pop("cert_file", ""), found.pop("key_file", "")
    is_list = "certificates" in found
    if cert_file and is_list:
        raise wrong("cannot combine 'cert_file' option with 'certs' option")
    if cert_file and not key_file:
        raise OptionsError("missing 'key_file' in TLS configuration")
    if key_file and not cert_file and not is_list:
        raise OptionsError("missing 'cert_file' in TLS configuration")
    if cert_file:
        found["certificates"] = (CertificateFiles(cert_file=cert_file, key_file=key_file),)
    found["verify"] = bool(found.get("verify") or found.get("verify_and_map"))
    found["timeout_ns"] = found.get("timeout_ns") or 2 * NS_PER_S
    return TlsOptions(is_list=is_list, **found)


def checked(options: TlsOptions) -> TlsOptions:
    """The same, when its files can be used. Raises OptionsError with nats-server's words."""
    from jetraft.api.options.tls import TlsError  # noqa: PLC0415
    from jetraft.api.tls.material import load  # noqa: PLC0415  only servers with TLS pay for the libraries

    try:
        load(options)
    except TlsError as error:
        raise OptionsError(str(error)) from error
    return options


def tls(settings: Settings, block: object) -> None:
    """The top-level block."""
    settings["tls"] = checked(tls_options(block))


def from_flags(settings: Settings) -> TlsOptions | None:
    """The options of the command line, or the block of the file. Raises OptionsError."""
    given: TlsOptions | None = settings.get("tls")
    words = ("tls_flag", "tls_verify", "tls_cert", "tls_key", "tls_ca_cert")
    if any(settings.get(word) for word in words):
        if not settings.get("tls_cert"):
            raise OptionsError("TLS Server certificate must be present and valid")
        if not settings.get("tls_key"):
            raise OptionsError("TLS Server private key must be present and valid")
        files = CertificateFiles(cert_file=settings["tls_cert"], key_file=settings["tls_key"])
        given = checked(
            TlsOptions(
                certificates=(files,),
                ca_file=settings.get("tls_ca_cert") or "",
                verify=bool(settings.get("tls_verify")),
            )
        )
    if given is not None and settings.get("allow_non_tls"):
        given = attrs.evolve(given, allow_non_tls=True)
    return given
