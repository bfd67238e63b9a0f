"""Rules that a stream's configuration sets for a message: each is one question, asked before the proposal.

A rule reads the applied state and what is in flight, and proposes nothing. What it allows must still hold when the
entry is applied, so it may only rest on state that later entries cannot change to the contrary.
"""
