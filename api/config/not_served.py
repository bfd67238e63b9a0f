"""Keys of nats-server 2.15 (server/opts.go) that are not served, by block. The top level has the empty name."""

from collections.abc import Mapping


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


NOT_SERVED: Mapping[str, frozenset[str]] = {
    "": words("""
        cluster_permissions connect_error_reports default_js_domain default_permissions
        disable_sublist_cache feature_flags gateway js_cluster_migrate jwt lookup_accounts
        max_sub_tokens max_traced_msg_len mqtt no_fast_producer_stall no_header_support ocsp ocsp_cache
        prof_block_rate prof_port reconnect_error_reports remote_syslog resolver_tls syslog
    """),
    "accounts": words("nkey"),
    "accounts.exports": words("latency"),
    "authorization": words("auth_hook"),
    "authorization.users": words("account"),
    "cluster": words("""
        accounts compression connect_backoff gateway max_traced_msg_len no_fast_producer_stall permissions
        ping_interval ping_max pool_size write_deadline write_timeout
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
        extension_hint info_queue_limit limits max_buffered_msgs max_buffered_size max_outstanding_catchup
        meta_compact meta_compact_size meta_compact_sync request_queue_limit tpm
    """),
}
