"""Models that write and read: roles, requests, prices, keys, and the log of every call."""
