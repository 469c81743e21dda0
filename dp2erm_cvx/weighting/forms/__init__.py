"""What a problem in the weights is: features, dispersion, targets, prices, sizes of arms."""
