"""A replica of a stream on this node: its log, its group, and the duties of its role.

`replica` joins store, group and state machine; `leader` lives for one term; `host` starts and stops replicas.
Work in the background (expiry, republishing, clearing leftovers) proposes entries like any client.
"""
