"""Resolvers of accounts' tokens: `resolver` and `resolver_tls`. Texts of errors are nats-server's."""

import re
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISDIR
from typing import Final
from urllib.parse import urlsplit

from jetraft.api.config.blocks import Apply, apply_all, put, spelled
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.tls import checked, tls_options
from jetraft.api.config.values import boolean, duration_ns, integer, text
from jetraft.api.options.options import ResolverOptions
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.url import redacted

MEMORY: Final = re.compile(r"(MEM|MEMORY)\s*", re.IGNORECASE)
URL: Final = re.compile(r"URL(?:\(\s*\"?([^\s\"]*)\"?\s*\))?", re.IGNORECASE)
DIRECTORY_MODE_WRITABLE: Final = 0o200
CACHED_MAX: Final = 1000  # accounts of a cache, where nothing is said
RESOLVER_NEEDED: Final = (
    'error parsing account resolver, should be MEM or  URL("url") or a map containing dir and type state=[FULL|CACHE])'
)


def resolver(settings: Settings, value: object) -> None:
    """`MEMORY`, `URL(...)`, or a block for a directory."""
    if isinstance(value, str):
        found = URL.match(value.strip())
        if found is not None:
            settings["resolver"] = url_resolver(found[1] or "")
        elif MEMORY.match(value.strip()):
            settings["resolver"] = ResolverOptions()
        else:
            raise OptionsError(RESOLVER_NEEDED)
        return
    if not isinstance(value, dict):
        raise OptionsError("error parsing operator resolver, wrong type")
    block: Settings = {}
    apply_all("resolver", value, RESOLVER, block)
    settings["resolver"] = directory_options(block)


def url_resolver(url: str) -> ResolverOptions:
    """A web server that has a token behind each account's key. Raises OptionsError, which shows no password."""
    try:
        urlsplit(url).port  # noqa: B018  reading it checks it
    except ValueError:
        raise OptionsError(f"error parsing account resolver url [{go_quote(redacted(url))}]") from None
    return ResolverOptions(kind="url", url=url if url.endswith("/") else f"{url}/")


def resolver_tls(settings: Settings, block: object) -> None:
    """TLS of the connections to the web server: an authority, and a certificate of this server."""
    settings["resolver_tls"] = checked(tls_options(block))


def directory_options(found: Settings) -> ResolverOptions:
    """The block of a resolver, with a directory unless it is in memory. Raises OptionsError."""
    kind = str(found.pop("kind", "")).lower()
    if kind in ("mem", "memory"):
        return ResolverOptions()
    if kind not in ("full", "cache"):
        raise OptionsError(RESOLVER_NEEDED)
    check_directory(found.get("directory") or "")
    if kind == "cache":
        refuse_for_cache(found)
        found |= {"allow_delete": True, "hard_delete": True}
        if found.get("limit", 0) <= 0:
            found["limit"] = CACHED_MAX
    else:
        if found.get("ttl_ns"):
            raise OptionsError("FULL does not accept ttl")
        if "hard_delete" in found and not found.get("allow_delete"):
            raise OptionsError("hard_delete has no effect without delete")
    if found.get("timeout_ns", 1) <= 0:
        raise OptionsError(f"Fetch timeout {found['timeout_ns'] // 10**9}s is too smal")
    if found.get("interval_ns", 1) <= 0:
        del found["interval_ns"]
    return ResolverOptions(kind=kind, **found)


def check_directory(name: str) -> None:
    """Raise OptionsError for what is no directory, or may not be written to. One that is missing is made later."""
    if not name:
        raise OptionsError("dir has no value and needs to point to a directory")
    try:
        mode = Path(name).stat().st_mode
    except (OSError, ValueError):  # it is made later, or cannot be
        return
    if not (S_ISDIR(mode) and mode & DIRECTORY_MODE_WRITABLE):
        raise OptionsError("dir needs to point to an accessible directory")


def refuse_for_cache(found: Settings) -> None:
    """Raise OptionsError for what means something to a directory of all accounts alone."""
    if found.get("interval_ns"):
        raise OptionsError("CACHE does not accept sync")
    if found.get("allow_delete"):
        raise OptionsError("CACHE does not accept allow_delete")
    if "hard_delete" in found:
        raise OptionsError("CACHE does not accept hard_delete")


def duration(name: str) -> Apply:
    """A duration, in nats-server's words where it is none."""

    def read(settings: Settings, value: object) -> None:
        try:
            settings[name] = duration_ns(name, value)
        except OptionsError:
            raise OptionsError(f"time: invalid duration {go_quote(str(value))}") from None

    return read


RESOLVER: Mapping[str, Apply] = {
    "type": put("kind", text, "type"),
    **spelled(put("directory", text, "dir"), "dir", "directory"),
    "limit": put("limit", integer),
    "ttl": duration("ttl_ns"),
    "interval": duration("interval_ns"),
    "timeout": duration("timeout_ns"),  # of a look-up at another node
    "allow_delete": put("allow_delete", boolean),
    "hard_delete": put("hard_delete", boolean),
}
