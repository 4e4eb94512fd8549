"""Asks models to mend what a port's rules could not, and keeps what passes the same proof."""
