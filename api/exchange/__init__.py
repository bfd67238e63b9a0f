"""Exports, imports, mappings and permissions of accounts. Never sees a message: the plane hands them over.

`values` says what there can be, `rules` what may be imported, `transforms` what a mapping or an import does to a
subject; `setup` tells the plane.
"""
