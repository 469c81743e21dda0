"""From a table to records: files, tables, codebooks, domains, datasets in memory and in blocks."""
