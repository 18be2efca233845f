"""Five post offices learn to read digits without showing each other a letter: the app behind `make demo`."""
