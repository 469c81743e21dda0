"""Reading a problem in the weights from its declaration."""
