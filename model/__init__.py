"""The Transformer of Vaswani et al. (2017): torch only, nothing of the pipeline."""
