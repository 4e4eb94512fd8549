"""Models compared on portability: the samples that they wrote, and what follows from them.

:mod:`.sweep` has them written, for :mod:`portkern.cli.verbs.compare`; what follows is pure.
"""
