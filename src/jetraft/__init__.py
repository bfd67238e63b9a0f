"""jetraft: a clustered JetStream server; the four folders behind this name each answer one question.

api "who is asking?", cluster "who owns it?", raft "in what order?", store "where is it kept?".
"""

__version__ = "0.2.0"
