"""What the service stores besides journals: records of tenants, in SQLite or MongoDB."""
