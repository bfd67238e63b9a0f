"""TLS for the monitoring pages: certificates of the clients' listener; clients need none, as with nats-server."""

import ssl

from jetraft.api.options.tls import TlsError, TlsOptions
from jetraft.api.tls.material import ciphers_of, load_pairs


def context_of(options: TlsOptions) -> ssl.SSLContext:
    """The context of the pages' listener. Raises TlsError."""
    load_pairs(options)  # for its texts: the files were read for the clients' listener in the same way
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    is_new_only = options.min_version == "1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_new_only else ssl.TLSVersion.TLSv1_2
    ciphers = ciphers_of(options).decode()
    try:
        if ciphers:
            context.set_ciphers(ciphers)
        for files in options.certificates:
            context.load_cert_chain(files.cert_file, files.key_file)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"error with the certificate of the monitoring pages: {error}") from error
    return context
