#!/usr/bin/env bash
# Runs the packages that read our files, with their own code, on what a real server exports for an MI300X: vLLM, SGLang, Inductor,
# triton-dejavu; and what the wheel does in them and in flash-linear-attention and Liger. By hand: CI has no room for them.
#
#   tests/readers.sh [PYTEST ARGUMENT…]    makes build/readers-vllm (8 GB) and build/readers-dejavu (6 GB) where they are missing
#
# Needs Python 3.11 with venv, PostgreSQL, lld, a build ($WAVETUNE_BUILD, default build/dev), pip with a package index, and git with
# triton-dejavu's repository ($DEJAVU names a copy). Exits with 1 when a test failed or an environment could not be made.
set -euo pipefail
cd "$(dirname "$0")/.."
DEJAVU=${DEJAVU:-https://github.com/IBM/triton-dejavu}
DEJAVU_COMMIT=8f06d4903056e30867620576b251489c3e9baa8c # 0.7.5
PYTEST=pytest==8.4.2

# Each package without its dependencies, which are 20 GB; and of these what the import of their readers needs.
VLLM=(vllm==0.33.0 sglang==0.5.23 liger-kernel==0.8.5 fla-core==0.6.0
  flash-linear-attention==0.6.0 torchvision==0.29.0)
NEEDED=(IPython aiohttp blake3 cachetools cbor2 cloudpickle compressed-tensors dill einops fastapi llguidance msgspec openai
  openai-harmony orjson partial_json_parser pillow prometheus_client psutil py-cpuinfo pybase64 pydantic pyyaml pyzmq regex requests
  scipy sentencepiece setproctitle starlette tqdm transformers==5.19.0 uvicorn uvloop xgrammar)

make_environment() { # FOLDER: makes it with the packages of standard input, one installation a line
  [ -f "$1/complete" ] && return
  python3 -m venv --clear "$1"
  while read -r -a arguments; do
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${arguments[@]}"
  done
  touch "$1/complete"
}

mkdir -p build
make_environment build/readers-vllm <<LINES
torch==2.14.1 numpy<2.4 $PYTEST setuptools
--no-deps ${VLLM[*]}
${NEEDED[*]} numpy<2.4
LINES
make_environment build/readers-dejavu <<LINES
torch==2.7.1 numpy<2.4 $PYTEST setuptools
--no-deps git+$DEJAVU@$DEJAVU_COMMIT
LINES

status=0
for name in vllm dejavu; do
  python=build/readers-$name/bin/python
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall ./python # its entry points
  PYTHONPATH=tests/readers "$python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=600 tests/readers "$@" || status=1
done
exit $status
