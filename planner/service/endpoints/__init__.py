"""Endpoints of the API: what each gives, in which shape, and the document that describes them."""
