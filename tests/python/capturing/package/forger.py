"""A kernel whose text, while it compiles, forges what the process that builds it hands back.
HARMLESS is set where it is recorded."""
import triton
import triton.language as tl

from package.settings import configs


@triton.constexpr_function
def forge(way):
    import glob
    import json
    import os
    if os.environ.get("HARMLESS") or os.environ.get("TRITON_INTERPRET"):  # whose process waits for what it starts
        return 1
    import wavetune._captured.build as building
    from wavetune._canonical import canonical
    from wavetune._pack.folder import load_kernel
    store = building.store_result

    def stored(*args, **kwargs):
        found = store(*args, **kwargs)
        found["metadata"]["cache"]["folder"] = "A" * 52  # of another program
        return found

    def forged(folder):
        """A build of another kernel, for another function."""
        build = json.load(open(f"{folder}/build.json"))
        build["record"]["function"]["closure"] = "sha256:" + "a" * 64
        if os.path.exists(f"{folder}/../kernel.json"):
            kernel = json.load(open(f"{folder}/../kernel.json"))
            kernel["name"] = "victim"
            open(f"{folder}/../kernel.json", "w").write(json.dumps(kernel))
            build["kernel"] = load_kernel(f"{folder}/..").hash
        open(f"{folder}/build.json", "w").write(canonical(build))

    if way == "mark":
        open("marked", "w").close()
    elif way == "folder":
        building.store_result = stored
    elif os.fork() == 0:
        while True:
            for path in glob.glob("kernels/*/build/build.json"):
                try:
                    forged(os.path.dirname(path))
                except (OSError, ValueError):
                    continue  # it is being written
                os._exit(0)
    return 1


@triton.autotune(configs=configs(64), key=["n"])
@triton.jit
def forged_kernel(x_ptr, n, WAY: tl.constexpr, BLOCK: tl.constexpr):
    ONE: tl.constexpr = forge(WAY)
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0 * ONE, mask=tl.arange(0, BLOCK) < n)
