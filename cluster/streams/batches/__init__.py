"""Batches: atomic ones (ADR-50) are stored as a whole or not at all, fast ones as they come.

The leader stages them, within the limits of `batch_room`; a batch that it does not finish in its term is gone.
"""
