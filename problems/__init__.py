"""A family of programs per file. Everything else asks for them by name, through the registry."""
