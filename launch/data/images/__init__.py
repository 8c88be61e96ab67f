"""Folders of images as data sets: found, decoded, scaled and normalised."""
