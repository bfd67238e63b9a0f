"""Why what judges clients cannot be made."""


class RegistryError(Exception):
    """The accounts cannot be read; the text is one line."""
