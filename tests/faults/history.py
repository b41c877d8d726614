"""What happened in a run: a file with one JSON object a line, written by many threads and read by checker.py.

    {"t": 12.345, "kind": "post", …}      t: seconds since the start; kinds: the table in checker.py
"""

import json
import threading
import time


class History:
    def __init__(self, path):
        self.path, self.began = path, time.monotonic()
        self.file, self.lock = open(path, "w"), threading.Lock()

    def add(self, kind, **members):
        line = json.dumps({"t": round(time.monotonic() - self.began, 3), "kind": kind, **members}, separators=(",", ":"))
        with self.lock:
            self.file.write(line + "\n")

    def close(self):
        with self.lock:
            self.file.close()


def read(path):
    with open(path) as file:
        for line in file:
            yield json.loads(line)
