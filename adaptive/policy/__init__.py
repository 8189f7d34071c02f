"""Who has the GPU now: decisions from the registry and the settings, no I/O."""
