"""Two hospitals learn one model without showing each other a patient: the app behind `make demo`."""
