"""The `cluster` block: where peers are, what they prove, and what goes over the links between them."""

from collections.abc import Mapping

from jetraft.api.config import without_effect
from jetraft.api.config.accounts.authorization import permissions, route_permissions
from jetraft.api.config.blocks import Apply, apply_all, put, spelled
from jetraft.api.config.compression import compression_of_links
from jetraft.api.config.gotypes import wrong_type
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import (
    boolean,
    duration_ns,
    host_port,
    integer,
    name_without_spaces,
    secret_text,
    text,
    texts,
)
from jetraft.api.options.options import ClusterOptions

UNCOMPRESSED = "Cluster compression has no effect: links between nodes are not compressed"
UNVERIFIED = "TLS certificate chain and hostname of solicited routes will not be verified. DO NOT USE IN PRODUCTION!"


def cluster(settings: Settings, value: object) -> None:
    """All of it."""
    apply_all("cluster", value, CLUSTER, settings)


def warnings(options: ClusterOptions) -> list[str]:
    """The lines of a start about the block."""
    found = [UNCOMPRESSED] if options.wishes_compression else []
    return found + ([UNVERIFIED] if options.tls is not None and options.tls.insecure else [])


def cluster_authorization(settings: Settings, value: object) -> None:
    """The secret that peers have to prove."""
    found: Settings = {}
    keys = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", secret_text), "pass", "password"),
        "timeout": put("timeout", duration_ns),
        **spelled(put("permissions", permissions), "default_permission", "default_permissions", "permissions"),
    }
    apply_all("cluster.authorization", value, keys, found)
    if "permissions" in found:  # where they were before; those of the block itself win
        settings["cluster_user_permissions"] = route_permissions("", found["permissions"])
    settings["cluster_secret"] = f"{found.get('user', '')}:{found.get('password', '')}"


def cluster_tls(settings: Settings, value: object) -> None:
    """Mutual TLS between nodes."""
    from jetraft.api.config.cluster_tls import cluster_tls as read  # noqa: PLC0415  only clusters with TLS pay for it

    read(settings, value)


def list_of_texts(key: str, value: object) -> tuple[str, ...]:
    """A list of strings, which one string alone is not."""
    if not isinstance(value, list):
        raise wrong_type(value, "[]interface {}")
    return texts(key, value)


def bulk_rate(settings: Settings, value: object) -> None:
    """The limit for snapshots and repairs to each peer, in bytes per second."""
    settings["bulk_bytes_per_s"] = integer("bulk_rate", value)
    if settings["bulk_bytes_per_s"] <= 0:
        raise OptionsError(f"cluster: bulk_rate must be positive, got {settings['bulk_bytes_per_s']}")


def listen(key: str, value: object) -> str:
    """An address as text; a port alone may be a number."""
    host_port(value)
    return f":{integer(key, value)}" if isinstance(value, int) else text(key, value)


CLUSTER: Mapping[str, Apply] = {
    "compression": compression_of_links,
    **without_effect.OF_CLUSTER,
    "name": put("cluster_name", name_without_spaces),
    "listen": put("cluster_listen", listen, "listen"),
    **spelled(put("cluster_host", text, "host"), "host", "net"),
    "port": put("cluster_port", integer, "port"),
    "routes": put("routes", list_of_texts),
    **spelled(put("cluster_advertise", text, "advertise"), "advertise", "cluster_advertise"),
    "no_advertise": put("no_advertise", boolean),
    "connect_retries": put("connect_retries", integer),
    "secret": put("cluster_secret", secret_text, "secret"),
    "secret_file": put("cluster_secret_file", text, "secret_file"),
    "authorization": cluster_authorization,
    "tls": cluster_tls,
    "permissions": put("cluster_permissions", lambda key, value: route_permissions(key, permissions(key, value))),
    "bulk_rate": bulk_rate,
    "reconnect_when_cut_off": put("reconnect_when_cut_off", boolean),
}
