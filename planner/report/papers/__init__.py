"""Reports of papers' tables: as text, Markdown, CSV, JSON and a page, and their folder."""
