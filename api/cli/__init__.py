"""The `jetraft` command: parses its arguments and runs the server, or reads a store that no server uses.

It reports an error as one line on the standard error stream and by its exit status. It serves no client and decides
nothing about streams; `store/inspection` and `cluster/recovering.py` read and change stores.
"""
