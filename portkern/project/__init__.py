"""A project of one's own: its file, its kernels, and the coverage that it expects."""
