"""portkern takes one operator and gives a verified, measured kernel for every accelerator."""
