"""The members of a group: the steps from the members that there are to those that the assignment asks for.

One member changes at a time, and none leaves before those that stay can go on without it.
"""
