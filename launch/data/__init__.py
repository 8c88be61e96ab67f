"""Which samples, from where, in which form? From the data set to a batch on its device."""
