"""Message traces, and latencies of services: the measures that a message asks for.

A message that asks for neither costs a look at its headers.
"""
