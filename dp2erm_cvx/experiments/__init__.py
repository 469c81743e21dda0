"""Experiments: functions that return plain tables. Nothing is printed or drawn here."""
