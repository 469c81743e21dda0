"""What is public of a problem in the weights: diameters, responses, V, W and the radius."""
