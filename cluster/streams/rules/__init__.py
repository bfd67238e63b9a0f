"""Rules that a stream's configuration sets for a message: each is one question, asked before the proposal.

A rule reads the applied state and the messages in flight, and proposes nothing. Its answer must still hold when the
entry is applied, so it rests only on state that later entries cannot change to the contrary.
"""
