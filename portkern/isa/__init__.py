"""Runs AMD code objects on a CPU: the very instructions that a compiler emitted."""
