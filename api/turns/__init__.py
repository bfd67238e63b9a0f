"""The turn of a node and its clocks: when is which part called?

It knows the plane and callbacks, nothing of clients, accounts or streams.
"""
