"""What announces that a latency-critical process will need the GPU, and how long before: learned from its events."""
