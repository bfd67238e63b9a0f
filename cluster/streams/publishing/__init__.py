"""One published message: what it says, where it stands between proposal and commit, and what its publisher is answered.

The ground floor of `streams`: nothing here decides what a stream takes. `candidate` reads a message once; `publish`
keeps it until it is applied; `puback`, `refusals` and `traced` are the answers.
"""
