"""From places to what is declared: one file per section of the schema."""
