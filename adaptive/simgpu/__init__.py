"""The embedded GPU: a simulated driver and CUDA library for machines without a GPU."""
