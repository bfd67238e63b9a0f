"""Users that may connect, and what they may do.

The core (`authenticator`) judges a CONNECT from the rules of the configuration and the facts of the connection and
returns a value: a verdict, a refusal, or a password to be hashed first. The shells around it hash in threads
(`hashing`) and close connections that do not name themselves in time (`deadlines`). Nothing here touches a socket, and
no secret is in a text that this package makes.
"""
