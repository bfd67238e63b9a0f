class Shelves: ...  # used by other extensions only
