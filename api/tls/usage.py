"""The text of --help_tls: an example of a `tls` block, the names of cipher suites and curves."""

from jetraft.api.tls.suites import CIPHERS, GROUPS, TLS13

EXAMPLE = """
TLS configuration is specified in the tls section of a configuration file:

e.g.

    tls {
        cert_file:      "./certs/server-cert.pem"
        key_file:       "./certs/server-key.pem"
        ca_file:        "./certs/ca.pem"
        verify:         true
        verify_and_map: true

        cipher_suites: [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        ]
        curve_preferences: [
            "CurveP256",
            "CurveP384",
            "CurveP521"
        ]
    }
"""


def usage() -> str:
    """The whole text. Names of suites and curves that OpenSSL does not have are left out."""
    suites = [*TLS13, *(name for name, known in CIPHERS.items() if known)]
    lines = [EXAMPLE, "Available cipher suites include:", *(f"    {name}" for name in suites)]
    lines += ["", "Available curve preferences include:", *(f"    {name}" for name in GROUPS), ""]
    return "\n".join(lines)
