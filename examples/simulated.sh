#!/usr/bin/env bash
# Runs a command with a simulated GPU, where there is none. Triton compiles for gfx942; tensors and launches are stand-ins
# (simulated/torch.py). The agent measures on tests/fake_hip, which knows the kernel of add_one.py by its name, adds on the CPU,
# and makes up the times: fewer workgroups are faster. Nothing that it measures says anything of a real GPU.
#
#   examples/simulated.sh COMMAND…      needs a python3 with Triton 3.5 to 3.9; builds the agent if build/release lacks it
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
export PYTHONPATH="$root/examples/simulated:$root/tests/python:$root/python" PATH="$root/build/release:$PATH"
python3 -c 'import triton' 2>/dev/null || {
  echo "simulated.sh: $(command -v python3) has no Triton: pip install triton==3.6.0, in a virtual environment" >&2
  exit 2
}
log=$root/build/simulated-build.log
mkdir -p "$root/build"
{ cmake -S "$root" --preset release && cmake --build "$root/build/release" --target wavetune wavetune-agent fake_hip; } >"$log" 2>&1 || {
  tail -n 20 "$log" >&2
  echo "simulated.sh: the agent cannot be built; deploy/quickstart.sh installs what that needs" >&2
  exit 1
}
export WAVETUNE_HIP_LIBRARY="$root/build/release/tests/fake_hip/libfake_hip.so" WAVETUNE_ARCH=gfx942 FAKE_HIP_LAUNCH_US=20
export WAVETUNE_KFD_TOPOLOGY=/nonexistent
exec "$@"
