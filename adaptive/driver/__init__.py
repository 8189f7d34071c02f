"""The RM ABI of the NVIDIA driver and the controls of the stock driver built on it."""
