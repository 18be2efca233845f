"""What a test changes to have another bundle of the same app."""

EDITION = 1
