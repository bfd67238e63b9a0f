"""The forms of credentials and rights: keys, seeds, tokens, claims, rules, verdicts.

Nothing here knows a connection or lets a client in (`auth` does), and no secret is in a text that this package makes.
"""
