"""An app whose numbers are known beforehand: the yardstick for what is told of a training."""
