"""Writes docs/reference/ (commands, routes, metrics, environment variables, cache formats, the database) and
python/wavetune/api.py (the types of the API), from the tables in the code.

    python3 tests/reference.py           writes the pages
    python3 tests/reference.py --check   exits with 1, and names the command, where a page is not what it would write (in ctest)

Options come from --help of the built programs ($WAVETUNE_BUILD, default build/dev), routes from /openapi.json and the table in
server/http/route.h, metrics from /metrics of a server on a private PostgreSQL, formats from common/formats/, tables from a new
database and the comments of migrations/ (schema_page.py). A variable that the code reads without an option is described in
VARIABLES here; one that is missing there, or that no code reads, is an error.
"""

import difflib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))

import harness  # noqa: E402
from schema_page import schema_page  # noqa: E402

PAGES = ROOT / "docs/reference"
API_TYPES = ROOT / "python/wavetune/api.py"
COMMAND = "python3 tests/reference.py"
HEAD = f"<!-- Written by {COMMAND} from the code: change the code, then run it. -->\n\n"
PROGRAMS = ("wavetune", "wavetune-agent", "wavetune-server")
CODE = ("common", "server", "agent", "inspect", "cli")
COMMENT_LINE = re.compile(r"^\s*(?:/\*| \*).*$", re.M)
HELP_WIDTH = 110  # of common/program/options.c
SHARED_BY = 3  # an option that so many commands of a program have in the same words is described once

# Variables that no option has: which program reads them, and why.
VARIABLES = {
    "WAVETUNE_AMDGPU_IDS": ("wavetune", "libdrm's list of GPU names, for `fetch` (default: `amdgpu.ids` of ROCm or the system)"),
    "WAVETUNE_ARCH": ("wavetune-agent", "the GPU's target, such as `gfx942`, instead of what the KFD's topology states"),
    "WAVETUNE_KFD_PROCESSES": ("wavetune-agent", "the folder in which AMD's driver lists processes (default: `/sys/class/kfd/kfd/proc`)"),
    "WAVETUNE_NVML_LIBRARY": ("wavetune-agent", "NVIDIA's management library (default: `libnvidia-ml.so.1`)"),
    "WAVETUNE_PID_NAMESPACE": ("wavetune-agent", "what `readlink /proc/self/ns/pid` prints where process ids are those that the GPU's driver reports "
                               "(default: the machine's first namespace)"),
    "WAVETUNE_AHEAD": ("the Python wheel", "`0`: compile no kernels [before they are needed](../start-tuned.md)"),
    "WAVETUNE_SHARED_CODE": ("the Python wheel", "`1`: share [compiled code](../start-tuned.md) with containers of the same image"),
    "WAVETUNE_CAPTURE": ("the Python wheel", "`off`, `shapes` (default), `source` or `raw`: what is [recorded of launches](../capture.md)"),
    "WAVETUNE_CAPTURE_FUNCTIONS": ("the Python wheel", "functions to record without an autotuner: `module:qualname` or patterns (`*`), separated by commas"),
    "WAVETUNE_CAPTURE_TO": ("the Python wheel", "the folder to which launches are recorded; it turns the wheel on"),
    "WAVETUNE_CA_FILE": ("the Python wheel", "certificates (PEM) to trust in place of the system's"),
    "WAVETUNE_BUILD": ("the Python wheel", "the folder of `wavetune` and `wavetune-agent`, before the wheel's own and `$PATH`"),
    "WAVETUNE_CACHE": ("the Python wheel", "the folder of `python3 -m wavetune tune`, or with choices.json that `fetch --format choices` brought"),
    "WAVETUNE_DEBUG_AGENT": ("wavetune-agent", "the library of ROCm's debug agent, where it is not found by itself"),
    "WAVETUNE_DISPLACEMENT_BYTES": ("wavetune-agent", "bytes to touch before a cold launch, instead of what the device's caches need"),
    "WAVETUNE_DUMPABLE": ("all programs", "`1` permits core dumps and debuggers of the same user"),
    "WAVETUNE_FAILPOINTS": ("wavetune-server", "for tests, in debug builds only: the file of rules by which it fails"),
    "WAVETUNE_FETCH_STATUS": ("entrypoint", "set for the container's program: the exit code of `wavetune fetch`"),
    "WAVETUNE_FORMATS": ("entrypoint", "the formats to render, separated by blanks (default `triton`)"),
    "WAVETUNE_HIP_COMPILER": ("wavetune-agent", "`hiprtc`, the path of a clang, or the path of hiprtc's library"),
    "WAVETUNE_HIP_LIBRARY": ("wavetune-agent", "the HIP runtime to open, instead of `libamdhip64.so.7`, `.6` or `.5`"),
    "WAVETUNE_IMAGE": ("wavetune.demand", "the digest of the image's identity (default: that of the identity file)"),
    "WAVETUNE_KFD_TOPOLOGY": ("wavetune, wavetune-agent", "the folder of topology nodes (default `/sys/class/kfd/kfd/topology/nodes`)"),
    "WAVETUNE_LOG": ("all programs", "the least level that is logged: `error`, `warning`, `info` (default) or `debug`"),
    "WAVETUNE_MIGRATIONS": ("wavetune-server", "the folder of migrations (default: the installed one, else the source tree's)"),
    "WAVETUNE_NVDISASM": ("wavetune, wavetune-agent", "the `nvdisasm` or `cuobjdump` to use"),
    "WAVETUNE_NVRTC": ("wavetune-agent", "the path of NVRTC's library"),
    "WAVETUNE_OBJDUMP": ("wavetune, wavetune-agent", "the `llvm-objdump` to use, 19 or later"),
    "WAVETUNE_ON_MISS": ("the Python wheel", "what happens to a key without a choice: `tune` (default), `first` or `nearest`"),
    "WAVETUNE_PCI_DEVICES": ("wavetune", "the folder of PCI devices, for `fetch` (default `/sys/bus/pci/devices`)"),
    "WAVETUNE_RELEASE": ("the Python wheel", "the digest of the only release whose choices are used"),
    "WAVETUNE_SANDBOX": ("wavetune-agent", "`none`, `seccomp` or `landlock` (default): at most so much confinement, for tests"),
    "WAVETUNE_SIGN_KEYS": ("wavetune", "private keys that sign where `--sign-key` is absent, separated by `:`"),
    "WAVETUNE_TABLES": ("the Python wheel", "folders of [tables](../deployments.md#tables-of-vllm-sglang-and-aiter), separated by `:`; "
                        "it turns the wheel on"),
    "WAVETUNE_TOKEN_FILE": ("entrypoint", "the file of the token, which the container's program then does not get"),
    "WAVETUNE_TOOLCHAIN": ("wavetune-agent", "more folders, separated by `:`, that confined compilers and workers may read"),
    "WAVETUNE_TRUSTED_KEYS": ("wavetune, wavetune-agent", "more public keys beside `--trusted-key`, separated by `:`"),
    "WAVETUNE_WORKER_WRITES": ("wavetune-agent", "a folder that stays writable to workers, for profilers; kernels can write there too"),
}
# Python and the entrypoint read some variables that options of the programs have, too.
PYTHON_ALSO = "`python3 -m wavetune` and `wavetune.demand` read WAVETUNE_URL, _TOKEN, _INSECURE_HTTP, _IDENTITY, _ENVIRONMENT, _TAG\n" \
    "and _REGIME as the programs do; `WAVETUNE_DEMAND=0` turns `python3 -m wavetune.demand` off."


def cell(text):
    """Text as Markdown shows it unchanged in a table: | is escaped, and < outside of `code`."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if i % 2 else part.replace("<", "&lt;") for i, part in enumerate(parts))


def code(text):
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


# Commands

def help_of(*words):
    """--help, as a user without files and variables of their own sees it."""
    done = subprocess.run([str(harness.BUILD / words[0]), *words[1:], "--help"], capture_output=True, text=True, timeout=60,
                          env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}, check=True)
    return done.stdout


def commands_of(program):
    """(name, summary) in the order of the program's own list."""
    return re.findall(r"^  (\S+(?: \S+)?)  +(.+)$", help_of(program).split("\ncommands:\n")[1].split("\n\n")[0], re.M)


def paragraphs(text):
    """Text that was wrapped at --help's width: a line is broken only where the next word did not fit."""
    lines, joined = text.strip("\n").splitlines(), []
    for i, line in enumerate(lines):
        goes_on = i and len(lines[i - 1]) + 1 + len(line.split(" ")[0]) > HELP_WIDTH
        joined[-1:] = [f"{joined[-1]} {line}"] if goes_on else joined[-1:] + [line]
    return joined


NOTE = r"-?\d+ to -?\d+|may be repeated|default [^;]*|WAVETUNE_[A-Z_]+"


def option_parse(left, text):
    """(option, what it does, notes, variable) of one entry of --help."""
    found = re.search(rf" \(((?:{NOTE})(?:; (?:{NOTE}))*)\)$", text)
    notes = found[1].split("; ") if found else []
    variable = next((note for note in notes if note.startswith("WAVETUNE_")), "")
    does = text[:found.start()] if found else text
    return left, does, "; ".join(note for note in notes if note not in (variable, "default ")), variable


def command_parse(program, name):
    """(usage, paragraphs, options) of a command."""
    text, _, tail = help_of(program, *name.split()).partition("\noptions:\n")
    usage, _, rest = text.partition("\n\n")
    entries = []
    for line in tail.splitlines():
        found = re.match(r"  (--\S+(?: \S+)*?)(?:  +(\S.*))?$", line)
        if found:
            entries.append([found[1], found[2] or ""])
        else:
            entries[-1][1] = f"{entries[-1][1]} {line.strip()}".strip()
    return usage.removeprefix("usage: "), paragraphs(rest)[1:], [option_parse(*entry) for entry in entries]


def option_rows(options):
    return table(("option", "does", "range, default", "variable"),
                 [(code(left), cell(does), cell(notes), code(variable))
                  for left, does, notes, variable in options])


def cli_page(programs):
    text = [HEAD + "# Commands and options\n\nWhat `--help` prints, for reading. A guide by task: [cli.md](../cli.md).\n"
            "Flags go before variables, variables before the configuration file, that before defaults.\n"]
    for program, commands in programs.items():
        shared, everywhere = shared_options(commands)
        text.append(f"## {program}\n")
        text.append("Every command has " + ", ".join(code(option[0].split(" ")[0]) for option in everywhere) + ". An option of\n"
                    "several commands is described here, and named at the end of each of them:\n\n" + option_rows(shared))
        for name, summary, (usage, description, options) in commands:
            own = [option for option in options if option not in shared]
            also = ", ".join(f"`{option[0].split(' ')[0]}`" for option in options
                             if option in shared and option not in everywhere)
            text.append(f"### {program} {name}\n\n`{usage}`: {cell(summary)}.\n")
            text += [cell(line) + "\n" for line in description if line]
            if own:
                text.append(option_rows(own))
            if also:
                text.append(f"And {also}.\n")
    return "\n".join(text)


def shared_options(commands):
    """Those of SHARED_BY commands, the most frequent first, and those of all commands."""
    seen = {}
    for _, _, (_, _, options) in commands:
        for option in options:
            seen[option] = seen.get(option, 0) + 1
    shared = sorted((option for option, n in seen.items() if n >= SHARED_BY), key=lambda option: -seen[option])
    return shared, [option for option in shared if seen[option] == len(commands)]


# Variables

def variables_read():
    """Variables that code names beside those of options: as whole texts in C and Python, in any way in the entrypoint."""
    literal = r'"(WAVETUNE_[A-Z_]*[A-Z])[="]'
    named = set(re.findall(r"\bWAVETUNE_[A-Z_]*[A-Z]\b", (ROOT / "deploy/container/entrypoint.sh").read_text()))
    for path in (ROOT / "python/wavetune").rglob("*.py"):
        named |= set(re.findall(literal, path.read_text()))
    for path in (path for top in CODE for path in (ROOT / top).rglob("*.[ch]")):
        named |= set(re.findall(literal, COMMENT_LINE.sub("", path.read_text())))
    return named


def environment_page(programs):
    options = {}
    for program, commands in programs.items():
        for name, _, (_, _, entries) in commands:
            for left, _, notes, variable in entries:
                if variable:
                    options.setdefault((variable, left.split(" ")[0]), {}).setdefault(program, []).append(name)
    with_option = {variable for variable, _ in options}
    unknown, unread = variables_read() - with_option - set(VARIABLES), set(VARIABLES) - variables_read()
    if unknown or unread:
        sys.exit(f"{COMMAND}: VARIABLES lacks {sorted(unknown)} and has {sorted(unread)}, which no code reads")
    rows = []
    for (variable, flag), readers in sorted(options.items()):
        where = "; ".join(f"`{program}`" + (f" ({', '.join(names)})" if len(names) < SHARED_BY else "")
                          for program, names in readers.items())
        rows.append((f"`{variable}`", f"`{flag}`", where))
    return (HEAD + "# Environment variables\n\nMost are [options](cli.md): `--lease-ms` is `WAVETUNE_LEASE_MS`, and `lease_ms` in the\n"
            "configuration file. A variable that is set to nothing counts as not set; of a flag it holds `true`, `false`, `1` or `0`,\n"
            "of an option that may be repeated one value.\n\n## Without an option\n\n" +
            table(("variable", "read by", "is"), [(f"`{name}`", who, cell(what)) for name, (who, what) in sorted(VARIABLES.items())]) +
            f"\n{PYTHON_ALSO}\n\n## Of options\n\n" + table(("variable", "option", "programs (and commands, where few)"), rows))


# Routes

def short(schema, indent=0):
    """A JSON schema in a line, or in one line for each member of an object."""
    if "$ref" in schema:
        return schema["$ref"].removeprefix("#/components/schemas/").replace("/properties/", ".")
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return " | ".join(short(each, indent) for each in schema[word])
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " | ".join(short_kind(kind, schema, indent) for kind in kinds)


def bounds(schema, low, high):
    """a..b, without a bound that is only the range of a double."""
    ends = [f"{end:g}" if isinstance(end, float) else f"{end}" if end is not None and abs(end) <= 1 << 52 else ""
            for end in (schema.get(low), schema.get(high))]
    return f" {ends[0]}..{ends[1]}" if any(ends) else ""


def short_kind(kind, schema, indent):
    if kind == "object":
        if schema.get("properties"):
            return members(schema, indent)
        more = schema.get("additionalProperties")
        return f"{{[name]: {short(more, indent)}}}" if isinstance(more, dict) else "object"
    if kind == "array":
        inner = short(schema["items"], indent) if "items" in schema else "any"
        return f"[{inner}]{bounds(schema, 'minItems', 'maxItems')}"
    if kind == "string":
        return schema.get("format", "string") + (f" /{schema['pattern']}/" if "pattern" in schema else "") + \
            bounds(schema, "minLength", "maxLength")
    return kind + (bounds(schema, "minimum", "maximum") if kind in ("integer", "number") else "")


def members(schema, indent):
    inner, lines = "  " * (indent + 1), []
    for name, of in schema["properties"].items():
        optional = "" if name in schema.get("required", ()) else "?"
        default = f" = {json.dumps(of['default'])}" if "default" in of else ""
        comment = f"  // {of['description']}" if "description" in of else ""
        lines.append(f"{inner}{name}{optional}: {short(of, indent + 1)}{default}{comment}")
    return "{\n" + "\n".join(lines) + f"\n{'  ' * indent}}}"


def body_limits():
    """(method, path) -> the largest body, of the table of routes."""
    text = (ROOT / "server/http/route.h").read_text().replace("\\\n", " ")
    rows = re.findall(r'ROUTE\(\s*\w+,\s*"(\w+)",\s*"([^"]+)",\s*\w+,\s*\w+,\s*([^,]+?),\s*"', text)
    return {(method, path): limit.replace("*", "").replace("  ", " ").replace("IB", "iB") for method, path, limit in rows}


def grouped(names, group, called):
    """`names`, with all of `group` under one name."""
    return [called] + [name for name in names if name not in group] if set(group) <= set(names) else names


def routes_page(document):
    limits, groups = body_limits(), {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(path.removeprefix("/v1/").split("/")[0] if path.startswith("/v1/") else "the server", []).append(
                (method.upper(), path, operation))
    readers = [role for role in document["paths"]["/v1/jobs"]["get"]["x-roles"] if role != "admin"]
    text = [HEAD + "# Routes\n\nThe contract of [api.md](../api.md) in short form; a running server has it as\n`GET /openapi.json`. "
            "Roles are those that may call a route beside `admin`, which may call every one. *Readers* stands for\n" + ", ".join(readers) +
            ".\nA failure is answered with a `Problem`.\n\n"
            "In schemas `?` marks what may be absent, `a..b` bounds a number, a length or a count, and `=` is a default.\n"]
    queries = {}
    for group, operations in groups.items():
        rows = []
        for method, path, operation in operations:
            asked = [p for p in operation["parameters"] if p["in"] == "query"]
            queries.update({p["name"]: p for p in asked})
            body = operation.get("requestBody")
            sent = short(next(iter(body["content"].values()))["schema"]) if body else ""
            limit = limits[method, path]
            answer = next((response["content"] for response in operation["responses"].values() if "content" in response), None)
            got = short(next(iter(answer.values()))["schema"]) if answer else ""
            statuses = " ".join(status for status in operation["responses"] if status != "default")
            names = grouped([p["name"] for p in asked], list(document["components"]["schemas"]["Environment"]["properties"]),
                            "the environment's members")
            roles = grouped([role for role in operation.get("x-roles", []) if role != "admin"], readers, "readers")
            rows.append((code(f"{method} {path}"), operation["summary"] + (f". Query: {', '.join(names)}" if names else ""),
                         "anyone" if operation.get("security") == [] else ", ".join(roles) or "admin alone",
                         cell(f"{sent}, {limit}") if sent else "", cell(f"{statuses} {got}".strip())))
        text.append(f"## {group}\n\n" + table(("route", "does", "roles", "body, at most", "answer"), rows))
    text.append("## Query arguments\n\n" + table(("name", "is", "type"), [
        (code(name), cell(p["description"]), cell(short(p["schema"])) + (
            f" = {json.dumps(p['schema']['default'])}" if "default" in p["schema"] else "")) for name, p in sorted(queries.items())]))
    text.append("## Schemas\n\n```ts\n" + "\n\n".join(
        (f"// {schema['description']}\n" if "description" in schema else "") + f"{name} = {short(schema)}"
        for name, schema in sorted(document["components"]["schemas"].items())) + "\n```\n")
    return "\n".join(text)


# Types of the wheel

API_HEAD = f'''"""The types of the API, for editors and type checkers: what wavetune.Client takes and answers.

Written by {COMMAND} from the schemas of /openapi.json: change those, then run it.
"""

from typing import Any, Dict, List, Literal, TypedDict, Union
'''


def python_type(schema, schemas):
    """A JSON schema as a type that Python 3.9 knows."""
    if "$ref" in schema:
        name, *inner = schema["$ref"].removeprefix("#/components/schemas/").split("/")
        for part in inner:
            schema = (schema if part != inner[0] else schemas[name])[part]
        return python_type(schema, schemas) if inner else f'"{name}"'
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return union([python_type(each, schemas) for each in schema[word]])
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    kinds = schema.get("type", "any")
    return union([python_kind(kind, schema, schemas) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def union(types):
    unique = list(dict.fromkeys(types))
    return unique[0] if len(unique) == 1 else f"Union[{', '.join(unique)}]"


def python_kind(kind, schema, schemas):
    if kind == "array":
        return f"List[{python_type(schema['items'], schemas) if 'items' in schema else 'Any'}]"
    if kind == "object":
        more = schema.get("additionalProperties")
        of = python_type(more, schemas) if isinstance(more, dict) and "properties" not in schema else "Any"
        return f"Dict[str, {of}]"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}.get(kind, "Any")


def api_module(document):
    schemas, parts = document["components"]["schemas"], [API_HEAD]
    for name, schema in sorted(schemas.items()):
        own = schema.get("properties")
        if not own:
            parts.append(f"{name} = {python_type(schema, schemas)}\n")
            continue
        total = "" if set(own) <= set(schema.get("required", ())) else ", total=False"
        members = "".join(f"    {json.dumps(member)}: {python_type(of, schemas)},\n" for member, of in own.items())
        parts.append(f"{name} = TypedDict({json.dumps(name)}, {{\n{members}}}{total})\n")
    return "\n".join(parts)


# Metrics, formats

def metrics_page(exposition):
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.M))
    rows = []
    for name, what in re.findall(r"^# HELP (\S+) (.+)$", exposition, re.M):
        labels = re.findall(rf"^{name}(?:_bucket)?\{{(.+)\}} ", exposition, re.M)
        names = re.findall(r'(\w+)="', labels[0]) if labels else []
        rows.append((f"`{name}`", kinds[name], ", ".join(f"`{label}`" for label in names), cell(what)))
    return HEAD + ("# Metrics\n\nWhat `GET /metrics` serves, in Prometheus' text format; a token of the role `reader` suffices.\n"
                   "Every server counts for itself since its start, except where the help says otherwise.\n\n" +
                   table(("name", "type", "labels", "is"), rows))


def exposition_of(server):
    text = server.request("GET", "/metrics").body.decode()
    return "\nwavetune_leases{" in text and "\nwavetune_devices{" in text and text


def formats_page():
    macro = re.search(r"#define FORMATS\(X\)((?:.*\\\n)*.*)", (ROOT / "common/formats/formats.c").read_text())[1]
    listed = re.findall(r"X\((\w+)\)", macro)
    rows = []
    for path in sorted((ROOT / "common/formats").glob("*.c")):
        for _, body in re.findall(r"const struct cache_format format_(\w+) = \{(.*?)\};", path.read_text(), re.S):
            name = re.search(r'\.name = "([^"]+)"', body)[1]
            summary = "".join(re.findall(r'"([^"]*)"', re.search(r'\.summary =((?:\s*"[^"]*")+)', body)[1]))
            does = [word for member, word in (("render", "`fetch`, `export`"), ("read", "`import`")) if f".{member} =" in body]
            rows.append((f"`{name}`", cell(summary), ", ".join(does), f"`{path.relative_to(ROOT)}`"))
    if sorted(row[0] for row in rows) != sorted(f"`{name.replace('_', '-')}`" for name in listed):
        sys.exit(f"{COMMAND}: common/formats/formats.c lists {listed}, its folder defines {[row[0] for row in rows]}")
    return HEAD + "# Cache formats\n\nWhat each can and cannot hold: [formats.md](../formats.md).\n\n" + table(
        ("format", "is", "commands", "code"), sorted(rows))


def pages():
    """Path -> text of every page, and of the module of types."""
    programs = {program: [(name, summary, command_parse(program, name)) for name, summary in commands_of(program)]
                for program in PROGRAMS}
    postgres = harness.Postgres(durable=False)
    try:
        with tempfile.TemporaryDirectory(prefix="wt-reference-") as folder:
            database = postgres.database()
            schema = schema_page(postgres, database, HEAD, table)
            server = harness.Server(database, pathlib.Path(folder))
            try:
                server.get("/v1/jobs")  # so that every family has a sample, with its labels
                # The housekeeper reads these gauges after the server is ready.
                exposition = harness.wait_until(lambda: exposition_of(server), 60,
                                                "the metrics of leases and of the fleet")
                document = server.get("/openapi.json")
            finally:
                server.stop()
    finally:
        postgres.stop()
    reference = {"cli.md": cli_page(programs), "environment.md": environment_page(programs),
                 "routes.md": routes_page(document), "metrics.md": metrics_page(exposition), "formats.md": formats_page(),
                 "schema.md": schema}
    return {PAGES / name: text for name, text in reference.items()} | {API_TYPES: api_module(document)}


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    if not all((harness.BUILD / program).exists() for program in PROGRAMS):
        sys.exit(f"{COMMAND}: {harness.BUILD} lacks the programs: build them, or name their folder in WAVETUNE_BUILD")
    written = pages()
    old = {path: path.read_text() for path in (*PAGES.glob("*.md"), API_TYPES) if path.exists()}
    if arguments:
        changed = sorted(path for path in {*old, *written} if old.get(path) != written.get(path))
        for path in changed:
            sys.stdout.writelines(difflib.unified_diff(old.get(path, "").splitlines(True), written.get(path, "").splitlines(True),
                                                       str(path.relative_to(ROOT)), "what the code says"))
        if changed:
            sys.exit(f"{', '.join(str(path.relative_to(ROOT)) for path in changed)} differ from the code; run {COMMAND}, and "
                     "commit what it writes")
        return
    PAGES.mkdir(exist_ok=True)
    for path in old:
        path.unlink()
    for path, text in written.items():
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
