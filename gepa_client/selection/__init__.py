"""Which proposals enter the pool, and by how many validation rows that is decided."""
