"""Exits while it is loaded."""

import sys

sys.exit("no licence")
