"""The commands that are clients of a running cluster: `jetraft stream`, `consumer`, `pub`, `context` and the others.

They log in as any client does, so that they may do what the user's credentials allow and nothing else; the server
decides. Words and options are those of the `nats` command line where that has them. No module of the server imports
this package: it needs the extra `cli` (typer, rich, nats-py), which a server does without.
"""
