"""How one subject becomes another: transforms, and patterns in pairs.

Which account or stream uses one is not known here.
"""
