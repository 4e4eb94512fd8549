"""Cells run elsewhere: plans for machines without a network, and for the nodes of a cluster."""
