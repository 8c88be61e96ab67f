"""Figures: plots as SVG, each with the table of what it shows, for pages in light and dark."""
