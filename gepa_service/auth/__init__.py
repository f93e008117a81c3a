"""Who a caller is, and what the caller may do."""
