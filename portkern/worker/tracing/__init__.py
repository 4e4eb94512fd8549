"""Traces a PyTorch file, which is code of others, and says what operator is in it."""
