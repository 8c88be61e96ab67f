"""MNIST and CIFAR-10: their files, drawn sets of their form, and both as data sets."""
