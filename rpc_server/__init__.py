"""`evolverpc serve`: runs beside a program and answers the evaluation protocol over HTTP for it."""
