"""Message traces as spans of OpenTelemetry: `jetraft traces`.

Servers trace on their own; nothing here runs in one.
"""
