"""The synchronous client. All but `_io` is generated from `aio`."""
