"""Experiments by design and by cell, as plain tables. Nothing is printed or drawn here."""
