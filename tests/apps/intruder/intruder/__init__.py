"""Apps that try what they must not do."""
