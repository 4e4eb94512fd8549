"""How far rounding may move an operator's outputs, derived from its reference alone."""
