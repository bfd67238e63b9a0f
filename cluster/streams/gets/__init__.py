"""Reads of a stream: direct gets of one message, of many, and in columns; gets through the leader.

Every answer needs the mandate for reads (`streams/mandate.py`); without it a replica leaves the get to others. What a
get may cost in a turn, and how many may wait, is bounded here.
"""
