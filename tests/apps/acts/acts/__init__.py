"""One message, one act: the yardstick for what a SuperNode makes of apps that behave and of apps that do not."""
