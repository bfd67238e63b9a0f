"""Reads the file with the secrets of a cluster: one in each line, the first is proven, all are accepted.

A file is neither in the list of processes nor in the description of a container. No error shows a byte of it.
"""

import os
from pathlib import Path
from typing import Final

SECRETS_MAX: Final = 4  # accepted at a time; more than two has no use but repeated changes
SECRET_BYTES_MAX: Final = 4096


class SecretFileError(ValueError):
    """The file is not there, or has no secret; the text is one line."""


def secrets_in(path: str) -> tuple[str, ...]:
    """The secrets in a file. Raises SecretFileError."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read((SECRET_BYTES_MAX + 2) * SECRETS_MAX + 1)
    except PermissionError:
        raise SecretFileError(f"cluster secret_file {path}: user {os.geteuid()} may not read it") from None
    except OSError as error:
        raise SecretFileError(f"cluster secret_file {path}: {error.strerror}") from None
    try:
        lines = [line.strip() for line in raw.decode().splitlines()]
    except UnicodeDecodeError:
        raise SecretFileError(f"cluster secret_file {path}: it is not text in UTF-8") from None
    found = tuple(line for line in lines if line)
    if not found:
        raise SecretFileError(f"cluster secret_file {path}: there is no secret in it")
    if len(found) > SECRETS_MAX or any(len(secret.encode()) > SECRET_BYTES_MAX for secret in found):
        most = f"{SECRETS_MAX} lines of {SECRET_BYTES_MAX} bytes"
        raise SecretFileError(f"cluster secret_file {path}: a secret is a line, and {most} are the most")
    return found
