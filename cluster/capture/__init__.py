"""The capture record: the one form in which the data plane hands a client's message to the cluster, and takes answers.

The layout is declared once, in `_capture.pxd`; the plane writes records and the cluster reads them through it.
"""
