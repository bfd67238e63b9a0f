"""Offline inspection of a store: its content, and its damage.

Files are opened read-only, nothing is repaired, and no key is needed to find damage.
"""
