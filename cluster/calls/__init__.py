"""Questions between the nodes of a cluster: one owner carries each out, and exactly one answer comes back.

A node that receives one never passes it on; what may have been carried out is repeated only where that is harmless.
"""
