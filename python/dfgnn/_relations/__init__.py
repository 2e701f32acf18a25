"""Relations between types of nodes: layouts, pairs, groups of rows."""
