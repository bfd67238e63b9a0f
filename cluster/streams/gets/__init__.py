"""Reads of a stream: direct gets of one message, of many, and in columns; gets through the leader.

A direct get is answered under the mandate for reads (`streams/mandate.py`); without it a replica leaves the get to
others. The cost of a get in a turn and the number of gets that wait are bounded here.
"""
