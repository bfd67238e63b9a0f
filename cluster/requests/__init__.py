"""Requests of clients on their way through the cluster: who owns the asset, who answers, and who else is asked.

The node where a request enters decides where it goes; the owner decides what it means.
"""
