"""The messages of calls between the nodes of a cluster, one module for each protocol (see raft/mesh/messages.py).

A message is frozen and is checked before it exists. Nothing here sends, waits or decides.
"""
