"""What is violated today, and why: the table is to become empty. A row that is not violated any more fails its test."""

from tests.corruption.damages import Damage

Key = tuple[str, str, Damage]  # setup, kind of file, damage

NO_FLOOR = "nothing tells recovery what must be there (issue 10, 1)"
OLD_BLOCK = "an older version of the newest block looks like a torn tail (issue 10, 1)"
NO_CHECKSUM = "the file has no checksum and no second copy (issue 10, 4)"
ONLY_COPY = "a single copy that nothing stands in for (issue 10, 4)"

KNOWN: dict[Key, str] = {
    ("log", "stream/*.blk last", Damage.TRUNCATE): NO_FLOOR,
    ("log", "stream/*.blk last", Damage.SWAP): NO_FLOOR,
    ("log", "stream/*.blk last", Damage.OLD): OLD_BLOCK,
    ("log-encrypted", "stream/*.blk last", Damage.TRUNCATE): NO_FLOOR,
    ("log-encrypted", "stream/*.blk last", Damage.SWAP): NO_FLOOR,
    ("log-encrypted", "stream/*.blk last", Damage.OLD): OLD_BLOCK,
    ("log-young", "stream/*.blk only", Damage.TRUNCATE): NO_FLOOR,
    ("log-young", "stream/*.blk only", Damage.ZERO): NO_FLOOR,
    ("log-young", "stream/*.blk only", Damage.DELETE): NO_FLOOR,
    ("log-young", "stream/*.blk only", Damage.OLD): OLD_BLOCK,
    ("one", "stream/*.blk only", Damage.TRUNCATE): NO_FLOOR,
    ("one", "stream/*.blk only", Damage.DELETE): NO_FLOOR,
    ("one", "stream/*.blk only", Damage.OLD): OLD_BLOCK,
    ("one", "stream/*.blk last", Damage.TRUNCATE): NO_FLOOR,
    ("one", "meta/*.blk last", Damage.DELETE): ONLY_COPY,
    ("one", "meta/*.ckpt only", Damage.FLIP): ONLY_COPY,
    ("one", "node.json", Damage.FLIP): NO_CHECKSUM,
    ("one", "meta.record", Damage.ZERO): NO_CHECKSUM,
    ("one", "memory-groups.json", Damage.TRUNCATE): NO_CHECKSUM,
}
