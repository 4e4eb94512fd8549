"""Holds each instruction of the AMD executor to oracles: ``python -m tools.fidelity --help``."""
