"""Publishing to streams and reading messages by HTTP: each request becomes one of a client of this server.

It answers what a client with the same login would be answered. It never looks into a stream itself, and has no rights
of its own.
"""
