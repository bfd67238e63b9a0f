"""Keys of nats-server 2.15 (server/opts.go) whose subject is not served: named, so that the answer is clear.

By block: the top has the empty name.
"""

from collections.abc import Mapping


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


NOT_SERVED: Mapping[str, frozenset[str]] = {
    "": words("""
        accounts allow_non_tls cluster_permissions connect_error_reports default_js_domain default_permissions
        default_sentinel disable_sublist_cache feature_flags gateway https https_port js_cluster_migrate jwt leaf
        leafnodes lookup_accounts mappings maps max_closed_clients max_sub_tokens max_traced_msg_len mqtt no_auth_user
        no_fast_producer_stall no_header_support no_system_account ocsp ocsp_cache operator operators prof_block_rate
        prof_port proxies reconnect_error_reports remote_syslog resolver resolver_pinned_accounts resolver_preload
        resolver_tls root roots syslog system system_account tls trusted trusted_keys websocket ws
    """),
    "authorization": words("""
        auth_callout auth_hook default_permissions no_auth_user nkey nkeys permissions proxy_required
    """),
    "authorization.users": words("""
        account allowed_connection_types clients connection_types nkey permission permissions proxy_required
    """),
    "cluster": words("""
        accounts compression gateway max_traced_msg_len no_fast_producer_stall permissions ping_interval ping_max
        pool_size write_deadline write_timeout
    """),
    "cluster.authorization": words("nkey permissions token users"),
    "jetstream": words("""
        domain extension_hint info_queue_limit limits max_buffered_msgs max_buffered_size max_outstanding_catchup
        meta_compact meta_compact_size meta_compact_sync request_queue_limit tpm
    """),
}
