"""The modes of the files that jetraft makes, whatever the umask allows: the only list of these modes.

A file with messages or secrets is for its owner; the umask may take more away and gives nothing. Byte code
(api/startup/kept_code.py) and tables of a stream that a user asks for (`jetraft export`) go by the umask alone, as
those of Python and of a shell.
Pure: numbers.
"""

from typing import Final

PRIVATE_FILE: Final = 0o600  # stores, backups, tokens of accounts; nats-server's of a store
PRIVATE_DIRECTORY: Final = 0o700
LOG_FILE: Final = 0o640  # as nats-server: with -V it has payloads, and a group may collect logs
SHOWN_FILE: Final = 0o644  # the process id, the ports, heads of chains: numbers for other programs
