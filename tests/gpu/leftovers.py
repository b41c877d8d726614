"""Does a GPU show one process what another left in its memory? CUDA's driver and NVRTC alone.

    tests/gpu/leftovers.py [DEVICE]     an ordinal; default 0

A process fills more than half of the GPU's free memory, and shared memory of every multiprocessor, with a pattern. Another
allocates what it can get, writes nothing and counts the pattern's words there: beside the first one, and after its end. That
counting finds them at all is shown by a process that counts what it has filled itself; it frees that, too, allocates again and
counts once more, which says whether the driver clears within a process. The last line says what was found; the exit status is
1 when another process's pattern showed in allocated memory, or the control failed.
"""

import ctypes
import subprocess
import sys

PATTERN = 0x5AFEC0DE
SHARED_WORDS = 48 * 1024 // 4
SOURCE = b"""
extern "C" __global__ void look(const unsigned *words, unsigned long long n, unsigned long long *found) {
  unsigned long long mine = 0, step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    mine += words[i] == PATTERN;
  if (mine) atomicAdd(found, mine);
}
extern "C" __global__ void plant_shared(unsigned *last) {
  extern __shared__ volatile unsigned words[];
  for (int i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) words[i] = PATTERN;
  __syncthreads();
  if (words[threadIdx.x] != PATTERN) *last = 1;
}
extern "C" __global__ void look_shared(unsigned long long *found) {
  extern __shared__ volatile unsigned words[];
  unsigned long long mine = 0;
  for (int i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) mine += words[i] == PATTERN;
  if (mine) atomicAdd(found, mine);
}
"""


def library(*names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise SystemExit(f"there is no {names[0]} here")


def right(result, what):
    if result != 0:
        raise SystemExit(f"{what}: error {result} of CUDA")


def compiled(major, minor):
    nvrtc = library("libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [f"--gpu-architecture=compute_{major}{minor}", f"-DPATTERN={PATTERN}u", f"-DSHARED_WORDS={SHARED_WORDS}"]
    right(nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"leftovers.cu", 0, None, None), "nvrtcCreateProgram")
    right(nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options))),
          "nvrtcCompileProgram")
    right(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)), "nvrtcGetPTXSize")
    text = ctypes.create_string_buffer(size.value)
    right(nvrtc.nvrtcGetPTX(program, text), "nvrtcGetPTX")
    return text


class Gpu:
    def __init__(self, ordinal):
        self.cuda = library("libcuda.so.1")
        device, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        values = []
        right(self.cuda.cuInit(0), "cuInit")
        right(self.cuda.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
        for attribute in (75, 76, 16):  # compute capability, multiprocessors
            value = ctypes.c_int()
            right(self.cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device), "cuDeviceGetAttribute")
            values.append(value.value)
        right(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        right(self.cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        right(self.cuda.cuModuleLoadData(ctypes.byref(self.module), compiled(*values[:2])), "cuModuleLoadData")
        self.processors = values[2]

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        right(self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        return free.value

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        right(self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), f"cuMemAlloc of {size} bytes")
        return pointer

    def fill(self, pointer, size, word):
        right(self.cuda.cuMemsetD32_v2(pointer, ctypes.c_uint(word), ctypes.c_size_t(size // 4)), "cuMemsetD32")

    def run(self, name, blocks, shared_bytes, *arguments):
        function = ctypes.c_void_p()
        right(self.cuda.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()), name)
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments))
        right(self.cuda.cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, shared_bytes, None, places, None), name)
        right(self.cuda.cuCtxSynchronize(), name)

    def counted(self, name, blocks, shared_bytes, *arguments):
        found, value = self.allocate(8), ctypes.c_uint64()
        self.fill(found, 8, 0)
        self.run(name, blocks, shared_bytes, *arguments, found)
        right(self.cuda.cuMemcpyDtoH_v2(ctypes.byref(value), found, ctypes.c_size_t(8)), "cuMemcpyDtoH")
        right(self.cuda.cuMemFree_v2(found), "cuMemFree")
        return value.value

    def plant(self, size):
        pointer = self.allocate(size)
        self.fill(pointer, size, PATTERN)
        last = self.allocate(4)
        self.run("plant_shared", 8 * self.processors, 4 * SHARED_WORDS, last)
        return pointer

    def look(self, size):
        """(words of memory, words of shared memory) that have the pattern, in fresh memory."""
        shared = self.counted("look_shared", self.processors, 4 * SHARED_WORDS)
        pointer = self.allocate(size)
        found = self.counted("look", 8 * self.processors, 0, pointer, ctypes.c_uint64(size // 4))
        right(self.cuda.cuMemFree_v2(pointer), "cuMemFree")
        return found, shared


def part_of(size, share):
    return int(size * share) // 4096 * 4096


def act(role, ordinal):
    gpu = Gpu(ordinal)
    if role == "plant":
        gpu.plant(part_of(gpu.free_bytes(), 0.6))
        print("planted", flush=True)
        sys.stdin.readline()
    elif role == "look":
        size = part_of(gpu.free_bytes(), 0.9)
        print(size, *gpu.look(size))
    else:
        size = 1 << 30
        planted = gpu.plant(size)
        found = gpu.counted("look", 8 * gpu.processors, 0, planted, ctypes.c_uint64(size // 4))
        right(gpu.cuda.cuMemFree_v2(planted), "cuMemFree")
        print(size, found, *gpu.look(size))


def ask(role, ordinal):
    done = subprocess.run([sys.executable, __file__, str(ordinal), role], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(done.stderr[-500:])
    return [int(word) for word in done.stdout.split()]


def main():
    ordinal = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if len(sys.argv) > 2:
        return act(sys.argv[2], ordinal)
    control = ask("control", ordinal)
    other = subprocess.Popen([sys.executable, __file__, str(ordinal), "plant"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if other.stdout.readline() != "planted\n":
        raise SystemExit("the pattern was not planted")
    beside = ask("look", ordinal)
    other.communicate("\n", timeout=60)
    after = ask("look", ordinal)
    print(f"control: {control[1]} of {control[0] // 4} words of its own, {control[2]} once they were freed and allocated again, "
          f"{control[3]} words in shared memory")
    shown = beside[1] + after[1]
    print(f"{'another process' + chr(39) + 's pattern shows' if shown else 'nothing of another process shows'}: {beside[1]} words in "
          f"{beside[0] >> 20} MiB beside it, {after[1]} in {after[0] >> 20} MiB after it; in shared memory {beside[2]} and {after[2]} words")
    return 1 if shown or control[1] != control[0] // 4 else 0


if __name__ == "__main__":
    sys.exit(main())
