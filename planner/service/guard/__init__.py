"""The guard in front of every address: host names, tokens, signing in, bounds."""
