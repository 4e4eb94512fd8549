"""Shows that a port computes what its original computes, and how far that was looked at."""
