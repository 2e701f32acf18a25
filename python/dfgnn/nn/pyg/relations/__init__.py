"""Layers of many relations, in one pass of the kernels."""
