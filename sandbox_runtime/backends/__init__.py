"""The kinds of sandbox there are; each is imported only when it is chosen."""
