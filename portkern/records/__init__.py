"""Records of what was found: one JSON line per attempt or cell, append-only."""
