"""Requests and answers of the service, as values; the threads in which they are answered."""
