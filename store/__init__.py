"""The storage layer: where is it kept?

Frames, blocks, the ordered log of one group, the index over it, and the data model (`store.model`) that all layers
share. It knows no Raft roles, accounts, sockets or clients, and does not decide the order of entries.
"""

assert __name__ == "jetraft.store", f"import this folder as jetraft.store, not as {__name__}"
