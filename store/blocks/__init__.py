"""Blocks: the files of a log. A block is a run of frames with a known first index and term.

Blocks are built, cached and scanned for damage here. Which blocks a log has is recorded in the ledger. Bytes after
damage count only where a frame is proved to begin, and an unknown term stays unknown (decisions 48 and 57).
"""
