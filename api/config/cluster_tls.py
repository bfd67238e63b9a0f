"""`cluster { tls }`: the keys of every `tls` block, as far as they mean something between nodes of one program.

Links speak TLS 1.3 and nothing older, and both ends always show a certificate, as in nats-server: `verify`,
`min_version`, `cipher_suites` (which are of 1.2) and `curve_preferences` are checked and change nothing. `timeout`
changes nothing either, as a handshake has a deadline of its own; what is for listeners of clients is passed over.
"""

from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.tls import KEYS, Found, Read, boolean, tls_options
from jetraft.api.options.options import ClusterTls

KNOWN_URLS = "verify_cert_and_check_known_urls"


def unmapped(_found: Found, key: str, value: object) -> None:
    """Certificates that name the user of routes: there is one secret, and no user."""
    boolean({}, key, value)
    if value:
        raise OptionsError(f'"{key}" in cluster.tls is not served by jetraft yet')


def cluster_tls(settings: Settings, value: object) -> None:
    """The block. Raises OptionsError for what weakens a link when it is passed over."""
    asked: Found = {}
    own: dict[str, Read] = {
        KNOWN_URLS: lambda _found, key, given: boolean(asked, key, given),
        "verify_and_map": unmapped,
    }
    options = tls_options(value, {**KEYS, **own})
    if len(options.certificates) > 1:
        raise OptionsError('several "certificates" in cluster.tls are not served by jetraft yet')
    files = options.certificates[0] if options.certificates else None
    if files is None or not options.ca_file:
        raise OptionsError("cluster.tls needs cert_file, key_file and ca_file")
    settings["cluster_tls"] = ClusterTls(
        cert_file=files.cert_file,
        key_file=files.key_file,
        ca_file=options.ca_file,
        insecure=options.insecure,
        known_hosts=() if asked.get(KNOWN_URLS) else None,
        pinned_certs=options.pinned_certs,
    )
