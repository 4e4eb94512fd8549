"""Changes between runs: failures, coverage and times, told from noise by earlier runs."""
