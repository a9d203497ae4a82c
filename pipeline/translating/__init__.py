"""Models at work: bundles, decoding, export."""
