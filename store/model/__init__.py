"""The data model that all layers share: subjects, names, configurations, states, errors, times, and their JSON.

Pure: values and functions over values. Nothing here awaits, reads a clock, opens a file or imports another layer. Names
are those of nats-server.
"""
