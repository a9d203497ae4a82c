"""Data that needs no download: the quickstart corpus, made by a small grammar on any machine."""
