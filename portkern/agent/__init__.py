"""Writes kernels: a strategy asks for expansions, a proposer makes candidates, records decide.

Everything that happened is in one log of attempts.
"""
