"""The words that all layers share: subjects, names, configurations, states, errors, times, and their JSON.

Everything here is a value or a pure function over values. Nothing here awaits, reads a clock, opens a file or knows
that other layers exist; what nats-server calls a thing is what it is called here.
"""
