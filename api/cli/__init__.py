"""The `jetraft` command."""
