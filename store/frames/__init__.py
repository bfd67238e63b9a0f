"""Byte layouts on disk: frames, records, block heads, checkpoints, their checksums, compression and encryption.

Each layout is known to one module. Data is verified before it is used. Only the keyring changes files.
"""
