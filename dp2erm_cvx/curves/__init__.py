"""Functions of one number, and certified bounds of what is asked of them."""
