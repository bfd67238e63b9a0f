"""The connections of clients as this server knows them, from their arrival to their end.

Whether a client may come in is decided in `auth`; bytes are read and written by the plane.
"""
