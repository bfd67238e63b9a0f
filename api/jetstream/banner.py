"""Log lines about JetStream at the start, as of nats-server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jetraft.api.options.options import JetStreamOptions
from jetraft.store.model.versioning import API_LEVEL

CIPHER_TITLES: Final = {"aes": "AES-GCM", "chachapoly": "ChaCha20-Poly1305"}


def jetstream_banner(options: JetStreamOptions, store_dir: Path, capacity: Mapping[str, int]) -> list[str]:
    """The log lines about JetStream at the start."""
    return [
        "---------------- JETSTREAM ----------------",
        f"  Strict:          {'true' if options.strict else 'false'}",
        f"  Max Memory:      {capacity['memory'] / 2**30:.2f} GB",
        f"  Max Storage:     {capacity['file'] / 2**30:.2f} GB",
        f'  Store Directory: "{store_dir}"',
        *([f"  Domain:          {options.domain}"] if options.domain else []),
        *([f"  Encryption:      {CIPHER_TITLES[options.cipher]}"] if options.key else []),
        f"  API Level:       {API_LEVEL}",
        "-" * 43,
    ]
