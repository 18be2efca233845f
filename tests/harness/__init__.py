"""Drives real Flower and Trellis processes for the tests: starts, watches, breaks and stops them. Makes no assertions
about them.
"""
