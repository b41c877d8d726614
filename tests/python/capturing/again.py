"""Makes the functions of a folder of captures again, in a process that has nothing of the program: prints their keys in
Triton's cache by file, as JSON, and what was refused.

    again.py FOLDER PLACE
"""
import json
import pathlib
import sys

import triton
from wavetune._captured.module import recreate
from wavetune._errors import PackError


def main(folder, place):
    keys = {}
    for i, path in enumerate(sorted(pathlib.Path(folder, "functions").iterdir())):
        document = json.loads(path.read_text())
        own = pathlib.Path(place, str(i))
        own.mkdir(parents=True)
        try:
            jit = recreate(document, own)
            assert isinstance(jit, triton.JITFunction), jit
            keys[path.name] = [jit.cache_key, document["cache_key"]]
        except PackError as error:
            keys[path.name] = str(error)
    names = [name for name in sys.modules if name.partition(".")[0] in ("package", "torch")]
    print(json.dumps({"keys": keys, "imported": names}))


if __name__ == "__main__":
    main(*sys.argv[1:])
