"""Cost of reading the data: the time of epochs, and whether a copy on a local disk pays."""
