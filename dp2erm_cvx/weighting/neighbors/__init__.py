"""The weights of many neighbors of one dataset, solved together."""
