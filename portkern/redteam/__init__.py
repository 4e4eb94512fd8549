"""How often kernels that cheat are paid, by environment and evaluator, and honest ones refused."""
