"""Images told apart by a federation: dense layers in numpy or PyTorch, or a convolutional network in PyTorch."""
