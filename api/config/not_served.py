"""Keys of nats-server 2.15 (server/opts.go) that are not served, by block. The top level has the empty name."""

from collections.abc import Mapping


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


NOT_SERVED: Mapping[str, frozenset[str]] = {
    "": words("""
        cluster_permissions default_js_domain default_permissions feature_flags gateway js_cluster_migrate jwt
        lookup_accounts max_sub_tokens mqtt no_fast_producer_stall ocsp ocsp_cache prof_port remote_syslog
        resolver_tls syslog
    """),
    "accounts": words("nkey"),
    "accounts.exports": words("latency"),
    "authorization": words("auth_hook"),
    "authorization.users": words("account"),
    "cluster": words("""
        gateway max_traced_msg_len no_fast_producer_stall permissions
        write_timeout
    """),
    "cluster.authorization": words("nkey permissions token users"),
    "leafnodes": words("""
        proxy write_deadline write_timeout
    """),
    "leafnodes.authorization": words("proxy_required"),
    "leafnodes.authorization.users": words("nkey proxy_required"),
    "leafnodes.remotes": words("""
        account_name cluster_traffic jetstream_cluster_migrate js_cluster_migrate proxy
        websocket ws_compression ws_no_masking
    """),
    "jetstream": words("""
        extension_hint limits tpm
    """),
}
