"""KEEP: where is it kept?

Records on disk and in memory: frames, blocks, the ordered log of one group, the index over it, and the words
(`store.model`) that every layer shares. This folder never knows a Raft role, an account, a socket or a client;
it never decides an order, it keeps the order that it is given.
"""

assert __name__ == "jetraft.store", f"import this folder as jetraft.store, not as {__name__}"
