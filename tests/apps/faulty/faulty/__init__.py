"""One ServerApp per way to end; a test chooses by naming the module in pyproject.toml."""
