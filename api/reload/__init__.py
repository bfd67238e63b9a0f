"""A new configuration for a running server: what has changed, whether that can change now, and the change.

A configuration is read and judged as a whole before anything is done. It never changes a part and refuses the rest.
"""
