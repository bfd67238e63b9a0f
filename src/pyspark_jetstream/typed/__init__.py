"""Payloads as typed columns, by the schema that a stream keeps in its metadata (`jetraft.schema`).

It says which type a schema has in Arrow, and converts whole columns of payloads to it. It never judges what may be
published: the server does.
"""
