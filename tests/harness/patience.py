"""How long a test waits for what must come.

A bound that only a hang reaches, however slow or busy the machine: nothing about speed follows from it. A test that
waits for something *not* to come takes a time of its own, as short as it can be.
"""

PATIENCE_S = 60.0
