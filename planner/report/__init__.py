"""What does a person or a script see? Tables, lines, CSV, JSON documents, live displays."""
