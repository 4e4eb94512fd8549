"""Models compared on portability: the samples that they wrote, and what follows from them.

Pure, as :mod:`portkern.experiment`: who asks the models is :mod:`portkern.cli.verbs.compare`.
"""
