"""The compiled plane: which subscriptions a message goes to, and the bytes that are written to each client.

Everything here works on subjects and bytes, never on the meaning of a message. It does no I/O of its own: a turn of the
event loop hands in what was read and takes out what is to be written. Python code is called once a turn, not once a
message.
"""
