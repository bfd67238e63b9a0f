"""The blocks of a file about accounts and their users: who they are, what they share, whom they trust.

They make records of `options`, `credentials` and `exchange`; nothing here reads a file or a clock.
"""
