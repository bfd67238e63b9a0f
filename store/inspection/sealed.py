"""Inspection of an encrypted group: with its key, decryption is verified; without, only checksums.

The checksum of a sealed frame covers the bytes on disk, so damage is found without a key. Only with the key can a body
be decrypted and be verified to belong to its place.
"""

from collections.abc import Mapping, Sequence

import attrs

from jetraft.store.frames._frame import parse_header
from jetraft.store.frames.cipher import GroupCipher
from jetraft.store.frames.format import FRAME_SEALED, KEY_NAMES, Identity
from jetraft.store.frames.keyring import Secrets, open_copies, sound_copies, unpack
from jetraft.store.port import StoreCorrupt, StoreError


@attrs.define(eq=False)
class SealedParts:
    """The cipher of a group, if its key is known, and the findings about its key files."""

    is_encrypted: bool = False
    cipher: GroupCipher | None = None
    damage: list[str] = attrs.Factory(list)
    notes: list[str] = attrs.Factory(list)

    def check(self, name: str, data: bytes, serial: int, offsets: Sequence[int]) -> list[str]:
        """The damage in a block's frames at these offsets, all with right checksums."""
        damage = []
        for offset in offsets:
            header = parse_header(data, offset)
            if header.flags & FRAME_SEALED and self.cipher is not None:
                try:
                    self.cipher.open_frame(serial, offset, data[offset : offset + header.length], what=name)
                except StoreCorrupt as error:
                    damage.append(str(error))
        return damage


def look(files: Mapping[str, bytes], identity: Identity, secrets: Secrets | None) -> SealedParts:
    """Unwrap the copies of the data key; `files` has the key files by name."""
    found = SealedParts()
    copies = [name for name in KEY_NAMES if name in files]
    if not copies:
        return found
    found.is_encrypted = True
    for name in copies:
        try:
            unpack(files[name], identity, what=name)
        except StoreError as error:
            found.damage.append(str(error))
    if secrets is None:
        found.notes.append("is encrypted: only checksums are verified (give --key-env to verify the encrypted data)")
        return found
    try:
        sound = sound_copies(copies, files.__getitem__, identity, what="the data key")
        opened = open_copies(sound.values(), identity, secrets)
    except StoreError:
        return found
    if opened is None:
        found.damage.append("is encrypted with another key than the given one")
    else:
        found.cipher = GroupCipher(opened[0].kind, opened[1], identity)
    return found
