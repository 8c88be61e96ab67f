"""Pages of the service: what each shows, its template, and what all of them have in common."""
