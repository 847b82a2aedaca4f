"""Triton kernels: verification, tree attention, fused operations."""
