"""An operator from a PyTorch file: how one is declared, and the sheet that says what it is."""
