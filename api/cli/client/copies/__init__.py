"""Copies of a stream in another place: `jetraft stream copy`, and publishes that are acknowledged.

Messages pass through this process; no server knows of the copy.
"""
