"""The Triton bridge: packs @triton.jit kernels ahead of time, with no GPU, into builds that wavetune runs."""

__version__ = "0.1.0"
