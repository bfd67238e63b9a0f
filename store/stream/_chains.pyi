from jetraft.store.stream._chunks import ChunkTable
from jetraft.store.stream._subjtree import SubjectTree

class Chains:
    tree: SubjectTree
    chunks: ChunkTable
    first_seq: int
    last_seq: int
    messages: int
