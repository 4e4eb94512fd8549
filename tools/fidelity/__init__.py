"""Holds each instruction of the AMD executor to oracles: see ``python -m tools.fidelity --help``."""
