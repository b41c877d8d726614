"""A kernel whose text does to the machine that compiles it what no kernel needs. HARMLESS is set where it is recorded."""
import triton
import triton.language as tl

from package.settings import configs


@triton.constexpr_function
def attack(way):
    import os
    if os.environ.get("HARMLESS"):
        return 1
    if way == "socket":
        import socket
        socket.create_connection(("127.0.0.1", 9))
    elif way == "read":
        return len(open("/etc/shadow").read())
    elif way == "write":
        open("/tmp/wavetune-hostile", "w").write("x")
    elif way == "fork":
        while True:
            os.fork()
    elif way == "memory":
        import mmap
        held = []
        while True:
            held.append(mmap.mmap(-1, 1 << 28))
    elif way == "time":
        while True:
            pass
    elif way == "signal":
        os.kill(os.getpid(), 9)
    elif way == "environment":
        return len(os.environ["WAVETUNE_TOKEN"])
    return 1


@triton.autotune(configs=configs(64), key=["n"])
@triton.jit
def hostile_kernel(x_ptr, n, WAY: tl.constexpr, BLOCK: tl.constexpr):
    ONE: tl.constexpr = attack(WAY)
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0 * ONE, mask=tl.arange(0, BLOCK) < n)
