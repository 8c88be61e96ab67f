"""Data: from the data set to a batch on its device."""
