"""Compiles kernels ahead of time, without a GPU, into builds: build.py has the steps of `pack`."""
