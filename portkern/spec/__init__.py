"""Operators, targets, candidates and backends: what is asked, and where each is found."""
