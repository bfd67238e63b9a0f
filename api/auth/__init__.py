"""Identities and permissions of clients: a CONNECT is judged here.

The core (`authenticator`) judges a CONNECT from the rules of the configuration and the facts of the connection and
returns a value: a verdict, a refusal, or a password to be hashed first. The shells around it (`login`) hash in threads
(`hashing`), look tokens up and ask a callout service. Nothing here touches a socket, and no secret is in a text
that this package makes.
"""
