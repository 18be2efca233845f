"""A ClientApp whose behaviour the instruction names."""
