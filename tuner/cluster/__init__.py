"""Cluster-level decisions, pure functions shared by the simulator and the Slurm controller."""
