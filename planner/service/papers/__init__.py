"""Page of papers' tables."""
