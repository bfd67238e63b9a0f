"""Is this configuration of a stream or consumer one that a server takes, and with which defaults?

A configuration is looked at by itself; what other streams there are is for `cluster/meta`.
"""
