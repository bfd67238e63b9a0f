"""Members of the meta group: its founders, the nodes that are let in later, and those that it excludes.

No stream of its table is looked at here; a member that is let in may have forgotten them.
"""
