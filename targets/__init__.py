"""Hardware facts, one YAML file per architecture or product."""
