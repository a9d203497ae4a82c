"""Files from addresses and archives: whole, verified, or not at all."""
