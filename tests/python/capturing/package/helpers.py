"""Helpers of another module than the kernel's."""
import triton
import triton.language as tl

# Text that moves the lines.
WIDTH = tl.constexpr(4)
SCALE = tl.constexpr(0.5)


@triton.jit
def half(x):
    return x * SCALE


@triton.jit(noinline=True)
def twice(x):
    return x + x


def make_adder(STEP):
    @triton.jit
    def add_step(x):
        # nested, and its text is indented
        return x + STEP

    return add_step


if triton.__version__.startswith("3.3."):  # which does not look into enclosing functions
    @triton.jit
    def add_three(x):
        return x + 3
else:
    add_three = make_adder(tl.constexpr(3))
