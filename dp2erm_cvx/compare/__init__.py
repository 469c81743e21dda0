"""Back ends of commands: bounds, certificates, plans and noise side by side, as plain tables."""
