"""What is found out about a use case before anything is planned: digest, times, its loss."""
