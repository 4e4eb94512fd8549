"""The command line: a verb, then Hydra overrides."""
