"""Triton kernels with the results of the torch code: verification, tree attention, fused ops."""
