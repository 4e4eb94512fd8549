"""A plain kernel from a traced graph: right at once, and where a faster one begins."""
