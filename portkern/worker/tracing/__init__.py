"""Traces a PyTorch file, which is code of others, and says what operator is in it."""

#: What the process has imported that workers are forked from which trace files and run references
#: of others.
PRELOAD = ("torch", "portkern.worker.tracing.ahead")
