"""GEPA's side: the adapter, batch evaluation, reflection and rows."""
