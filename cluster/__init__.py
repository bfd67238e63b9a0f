"""OWN: who owns it?

Which node holds which stream, and what a committed entry means for streams and consumers. This folder never parses
a client's bytes, never opens a socket, and never writes a file except through the store.
"""

assert __name__ == "jetraft.cluster", f"import this folder as jetraft.cluster, not as {__name__}"
