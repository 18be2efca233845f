"""Drives real Flower and Trellis processes for the tests: start, watch, break, stop. Holds no assertions of its own."""
