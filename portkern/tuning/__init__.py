"""The best knob settings of a kernel: the search for them, and the database that keeps them."""
