"""Pages: reports as HTML with plots, without scripts and without links to elsewhere."""
