"""Whether two wheels have the same files and metadata, however these are written:

    wheels_equal.py WHEEL WHEEL
"""

import configparser
import email
import sys
import zipfile

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

# The order of files; the tool that made it; what no importer reads any more.
LEFT_OUT = ("RECORD", "WHEEL", "top_level.txt")
NOT_COMPARED = ("Metadata-Version", "Dynamic")


def content(path):
    files = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if ".dist-info/" not in name or not name.endswith(LEFT_OUT):
                files[name] = archive.read(name)
    info = next(name for name in files if name.endswith("/METADATA")).rpartition("/")[0]
    entries = configparser.ConfigParser(delimiters="=")
    entries.read_string(files.pop(f"{info}/entry_points.txt").decode())
    metadata = email.message_from_bytes(files.pop(f"{info}/METADATA"))
    members = sorted((name, comparable(name, value)) for name, value in metadata.items()
                     if name not in NOT_COMPARED)
    points = {group: dict(entries[group]) for group in entries.sections()}
    return {"files": files, "entry points": points, "members": members,
            "description": metadata.get_payload().strip()}


def comparable(name, value):
    meaning = {"Requires-Dist": Requirement, "Requires-Python": SpecifierSet}.get(name, str)
    return str(meaning(value))


one, other = map(content, sys.argv[1:])
different = [what for what in one if one[what] != other[what]]
for what in different:
    print(what, "differ:")
    for each in (one, other):
        print(sorted(each[what]) if what == "files" else each[what])
sys.exit(bool(different))
