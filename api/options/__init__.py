"""The options of a server as frozen records: how is it configured?

Flags and files become these in `config`; nothing here reads a file or knows a connection.
"""
