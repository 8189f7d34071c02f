"""GPU processes: classes, rules, channel groups."""
