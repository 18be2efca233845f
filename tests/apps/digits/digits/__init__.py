"""Digits learned by a federation: the yardstick for comparing strategies."""
