"""SPEAK: who is asking?

Bytes, sessions, subjects, accounts, JSON, HTTP and the command line. This folder turns requests into calls on
`cluster` and answers into bytes; it never makes a storage or an ordering decision.
"""

assert __name__ == "jetraft.api", f"import this folder as jetraft.api, not as {__name__}"
