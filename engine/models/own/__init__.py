"""Targets that run our own decoder: on the CPU, on CUDA, with streamed weights."""
