"""The slow loops: tuning on a node, quota and victims on a cluster."""
