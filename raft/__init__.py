"""ORDER: in what order?

Many small consensus groups and the links between nodes that carry them. Entries are opaque bytes here. This folder
never looks into an entry, never knows what a stream or a consumer is, and never answers a client.
"""

assert __name__ == "jetraft.raft", f"import this folder as jetraft.raft, not as {__name__}"
