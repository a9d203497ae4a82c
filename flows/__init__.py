"""The edge: the command line and, from it, the engines that place the work."""
