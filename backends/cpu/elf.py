"""Which symbols an ELF file defines, without loading it: loading runs its constructors."""

from __future__ import annotations

import struct
from pathlib import Path

SYMTAB, DYNSYM = 2, 11
GLOBAL, WEAK = 1, 2


def defines(path: Path, symbol: str) -> bool:
    """Whether the 64-bit little-endian ELF file at ``path`` defines the global ``symbol``."""
    data = path.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry_size in headers:
        if kind not in (SYMTAB, DYNSYM):
            continue
        names = headers[link][4]
        for at in range(offset, offset + length, entry_size):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if section == 0 or info >> 4 not in (GLOBAL, WEAK):
                continue  # 0: used here, defined elsewhere
            if data[names + name : data.index(b"\0", names + name)] == symbol.encode():
                return True
    return False
