"""The ledger of a node: what its logs must contain, and what it has promised, apart from the logs themselves.

Files come first, then the record in the ledger, then the clean-up. So what the ledger names and the directory lacks is
damage, and what the directory has and the ledger does not name was never finished.
"""
