#!/usr/bin/python3
"""Makes the wheels of a release: the pure one, and with --programs one for x86-64 Linux since
glibc 2.31.

    deploy/wheel.py TO [--version VERSION] [--programs FOLDER]

FOLDER is what deploy/client/build.sh made: its programs are in the package's folder `bin`, their
licences among the metadata, and console scripts of their names execute them. All files in the
wheels have the time of $SOURCE_DATE_EPOCH (default: now) and the modes 644 or 755, so that wheels
of the same files are the same, byte for byte.

No package is needed, and none of whatever version is there: what `pip install ./python` has
setuptools do is done here, for the few members that python/pyproject.toml has
(deploy/test/wheel.sh compares).
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import stat
import time
import tomllib
import zipfile

PYTHON = pathlib.Path(__file__).resolve().parents[1] / "python"
PLATFORM = "manylinux_2_31_x86_64"
SCRIPTS = {"wavetune": "wavetune.entry:client", "wavetune-agent": "wavetune.entry:agent"}
KNOWN = {"name", "dynamic", "description", "readme", "requires-python", "license", "license-files",
         "dependencies", "optional-dependencies", "scripts", "entry-points"}
# Of the libraries in the programs: OpenSSL, curl, zlib, libarchive, msgpack-c, libseccomp, libelf.
LINKED = ("Apache-2.0 AND curl AND Zlib AND BSD-2-Clause AND BSL-1.0 AND LGPL-2.1-only AND "
          "(GPL-2.0-or-later OR LGPL-3.0-or-later)")
ZIP_BEGINS = 315532800  # 1980


def metadata(project: dict, version: str, licence: str, texts: "list[str]") -> str:
    """https://packaging.python.org/en/latest/specifications/core-metadata/"""
    unknown = sorted(set(project) - KNOWN) + ["dependencies"] * bool(project["dependencies"])
    if unknown:
        raise SystemExit(f"deploy/wheel.py does not write what {PYTHON}/pyproject.toml states as "
                         f"{', '.join(unknown)}: teach it")

    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version}",
             f"Summary: {project['description']}", f"License-Expression: {licence}"]
    lines += [f"License-File: {name}" for name in sorted(texts)]
    lines += [f"Requires-Python: {project['requires-python']}",
              "Description-Content-Type: text/markdown"]
    for extra, wanted in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        for one in wanted:
            package, _, marker = (part.strip() for part in one.partition(";"))
            condition = f"({marker}) and " if marker else ""
            lines.append(f'Requires-Dist: {package}; {condition}extra == "{extra}"')
    return "\n".join(lines) + "\n\n" + (PYTHON / project["readme"]).read_text()


def write(to: pathlib.Path, document: dict, version: "str | None",
          programs: "pathlib.Path | None") -> None:
    """Writes a wheel to the folder `to`: with the programs in a folder, or the pure one."""
    project, files = document["project"], {}
    licence = project["license"]
    platform = PLATFORM if programs else "any"
    own = document["tool"]["setuptools"]
    for package in own["packages"]:
        folder = PYTHON / package.replace(".", "/")
        for pattern in ("*.py", *own["package-data"].get(package, [])):
            for path in folder.glob(pattern):
                files[str(path.relative_to(PYTHON))] = path.read_bytes()

    init = files["wavetune/__init__.py"].decode()
    stated = re.search(r'^__version__ = "(.*)"$', init, re.M)
    version = version or stated[1]
    init = init[:stated.start(1)] + version + init[stated.end(1):]
    files["wavetune/__init__.py"] = init.encode()

    texts = {name: (PYTHON / name).read_bytes() for name in project["license-files"]}
    if programs:
        files.update({f"wavetune/bin/{name}": (programs / name).read_bytes() for name in SCRIPTS})
        licence = f"{licence} AND {LINKED}"
        texts.update({path.name: path.read_bytes() for path in (programs / "LICENSES").iterdir()
                      if path.name != "wavetune"})  # whose text is in LICENSE

    scripts = {**project["scripts"], **(SCRIPTS if programs else {})}
    points = [f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in places.items())
              for group, places in {"console_scripts": scripts, **project["entry-points"]}.items()]
    wheel = ("Wheel-Version: 1.0\nGenerator: deploy/wheel.py\n"
             f"Root-Is-Purelib: {'false' if programs else 'true'}\nTag: py3-none-{platform}\n")
    info = f"wavetune-{version}.dist-info"
    files[f"{info}/METADATA"] = metadata(project, version, licence, list(texts)).encode()
    files[f"{info}/WHEEL"] = wheel.encode()
    files[f"{info}/entry_points.txt"] = "\n".join(points).encode()
    files.update({f"{info}/licenses/{name}": data for name, data in texts.items()})
    pack(to / f"wavetune-{version}-py3-none-{platform}.whl", files, f"{info}/RECORD")


def pack(path: pathlib.Path, files: "dict[str, bytes]", record: str) -> None:
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    when = time.gmtime(max(epoch, ZIP_BEGINS))[:6]
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")

    files = {**dict(sorted(files.items())), record: "".join([*lines, f"{record},,\n"]).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, when)
            mode = 0o755 if name.startswith("wavetune/bin/") else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the wheels of a release.")
    parser.add_argument("to", type=pathlib.Path, metavar="TO")
    parser.add_argument("--version", help="another one than that of the package")
    parser.add_argument("--programs", type=pathlib.Path, metavar="FOLDER",
                        help="also make a wheel with the programs of this folder")
    arguments = parser.parse_args()
    document = tomllib.loads((PYTHON / "pyproject.toml").read_text())
    arguments.to.mkdir(parents=True, exist_ok=True)
    write(arguments.to, document, arguments.version, None)
    if arguments.programs:
        write(arguments.to, document, arguments.version, arguments.programs)


if __name__ == "__main__":
    main()
