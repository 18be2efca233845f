"""A language model fine-tuned by a federation with LoRA: the model stays where it is, only adapters travel."""
