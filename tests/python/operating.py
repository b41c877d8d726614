"""What an operator does between the launches that programs recorded and the release that they start with: jobs for all that
was built, and a signed release of the winners. For test_loop.py and bench/captured_gpu.py. One thread uses it.
"""


def launches(client):
    """All recorded launches, each with its function's name."""
    found = []
    for item in client.list("/v1/captures"):
        for launch in client.request("GET", f"/v1/captures/{item['id']}")["launches"]:
            found.append({**launch, "function": item["name"]})
    return found


def spaces(build):
    """The space of each variant of a build: the configs that were compiled, of which the first is the program's default."""
    for variant in build["variants"]:
        configs = [one["config"] for one in variant["objects"]]
        yield variant["key"], {"configs": configs, "default": configs[0]}


def jobs(client, environment, priority=lambda name: 0, **more):
    """Submits a job for each key that was built; returns each with its function's name, which `priority` may go by."""
    wanted = {}
    for launch in launches(client):
        if launch["state"] == "built":
            wanted.setdefault((launch["kernel"], launch["build"]), launch["function"])
    requests, names = [], []
    for (kernel, digest), name in wanted.items():
        for key, space in spaces(client.request("GET", f"/v1/kernels/{kernel}/builds/{digest}")):
            requests.append({"kernel": kernel, "key": key, "space": space, "environment": environment,
                             "priority": priority(name), **more})
            names.append(name)
    return list(zip(names, client.submit_all(requests))) if requests else []
