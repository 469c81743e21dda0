"""Functions and numbers of another module of an author, for tests of what a function reaches."""

import os

import numpy as np

SCALE = 0.83
TABLE = {"scale": 0.83}


def scaled(x):
    """Reaches a number of its own module."""
    return x * SCALE


def looked_up(x):
    """Reaches a table of its own module."""
    return x * TABLE["scale"]


def of_environment(x):
    """Reaches the environment."""
    return x * float(os.environ["SCALE"])


def loaded(x):
    """Reads a file."""
    return x * np.load("scale.npy")
