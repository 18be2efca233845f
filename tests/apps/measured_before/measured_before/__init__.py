"""As `measured`, in the words that Flower had before its Message API: fit, evaluate, and results with a loss."""
