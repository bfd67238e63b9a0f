"""How a member that lacks entries gets them: from a snapshot, from the other members' logs, or by joining again.

Nothing is guessed: an entry is taken from another member only when it is provably the one that is missing, and a member
that does not know what it has promised takes no part until it does. Source: Protocol-Aware Recovery (FAST'18).
"""
