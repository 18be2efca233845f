"""Anomalies found by a federation: an autoencoder learns what is normal, and what it cannot reproduce is not."""
