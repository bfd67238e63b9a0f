"""The connections between the nodes of a cluster: sessions in order, calls with answers, bulk transfers beside them.

It knows nodes and bytes, nothing of groups or entries. A frame is delivered once and in order, or the session ends.
"""
