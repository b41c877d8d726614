"""Null in a body is refused with a pointer unless /openapi.json allows it. The members are taken from that document."""

import pytest
from hands import ENVIRONMENT, SMALL, Hand, hands, kernel, register, server, submit  # noqa: F401 (fixtures)

DIGEST = "sha256:" + "0" * 64


def resolved(contract, schema):
    while "$ref" in schema:
        schema = contract["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def optional_members(contract, schema, body, pointer=""):
    """(pointer, path of keys) of what may be left out, but not be null: at the top, and in what `body` has below."""
    schema = resolved(contract, schema)
    if "oneOf" in schema:
        schema = resolved(contract, schema["oneOf"][0])
    for name, member in schema.get("properties", {}).items():
        member = resolved(contract, member)
        choices = [resolved(contract, choice) for choice in member.get("anyOf", [member])]
        member = choices[0]
        may_be_null = any("null" in choice.get("type", []) for choice in choices)
        if name not in schema.get("required", ()) and not may_be_null:
            yield f"{pointer}/{name}", name, body
        inner = body.get(name)
        if isinstance(inner, dict) and "properties" in member:
            yield from optional_members(contract, member, inner, f"{pointer}/{name}")
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield from optional_members(contract, member["items"], inner[0], f"{pointer}/{name}/0")


def bodies(kernel, hand, lease):
    """(method, path, an accepted body) of every route with a JSON body; documents that are kept under
    their digests (manifests, builds, identities) name null in the contract."""
    job = {"kernel": kernel, "key": {"n": 1}, "space": SMALL, "environment": ENVIRONMENT}
    entry = {"key": {"n": 1}, "config": {"A": 1}}
    measurement = {"seq": 1, "config": 0, "outcome": "compile", "detail": "x"}
    yield "/v1/jobs", "/v1/jobs", {**job, "environment": dict(ENVIRONMENT), "finals": {}}
    yield "/v1/agents", "/v1/agents", {"boot": "b", "name": "n", "version": "0", "devices": [
        {"device": "cpu0", "backend": "cpu", "environment": dict(ENVIRONMENT)}]}
    yield "/v1/leases", "/v1/leases", {"agent": hand.id, "device": "cpu0", "nonce": "null"}
    yield "/v1/leases/{id}/results", f"/v1/leases/{lease['lease']}/results", {"epoch": lease["epoch"], "measurements": [measurement]}
    yield "/v1/releases", "/v1/releases", {"environment": dict(ENVIRONMENT), "replaces": {}}
    yield "/v1/channels/{name}/signatures", "/v1/channels/c/signatures", {
        "environment": dict(ENVIRONMENT), "counter": 1, "signature": {"key": DIGEST, "signature": "A" * 86 + "=="}}
    yield "/v1/compatibilities", "/v1/compatibilities", {"asked": {"cpu": "a"}, "served": {"cpu": "b"}}
    yield "/v1/demand", "/v1/demand", {"environment": dict(ENVIRONMENT), "items": [{"kernel": "k", "key": {"n": 1}}]}
    yield "/v1/gc", "/v1/gc", {}
    yield "/v1/imports", "/v1/imports", {"format": "dejavu", "environment": dict(ENVIRONMENT), "kernels": [
        {"kernel": kernel, "entries": [entry]}]}


def test_null_is_refused_unless_the_contract_names_it(server, kernel, hands, submit):  # noqa: F811
    contract = server.get("/openapi.json")
    hand = hands("a")
    submit(SMALL)
    lease = hand.pull().json
    tried, wrong = 0, []
    for route, path, body in bodies(kernel, hand, lease):
        operation = contract["paths"][route]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        for pointer, name, place in list(optional_members(contract, schema, body)):
            before = dict(place)
            place[name] = None
            answer = server.request("POST", path, body)
            place.clear()
            place.update(before)
            tried += 1
            if answer.status != 422 or answer.json["pointer"] != pointer:
                wrong.append((path, pointer, answer))
    assert not wrong, "\n".join(map(str, wrong))
    assert tried > 60, tried
