"""The node side: what watches processes, decides who has the GPU, and carries it out."""
