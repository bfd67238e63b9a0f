"""The meaning of the committed entries of a stream's group: messages, consumers, limits, duplicates, expiry.

Pure: nothing here reads a clock, draws a number or sends. Replicas that have applied the same entries have the same
state and the same digest.
"""
