"""Builds what programs posted to a server: leases launches, builds them, pushes kernels and builds,
says what became of each. A thread keeps the lease; when a builder is stopped its leases expire, and
another gets the launches. What an older lease posts is refused, and counted here.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from .._canonical import Fields, Json, canonical, digest_bytes
from .._errors import PackError, one_line
from .._pack.folder import load_kernel
from .._pack.signing import SigningKey
from .._runtime.worker import Next, Worker
from ..client import ApiError, Client
from .confined import Terms
from .documents import Function, Launch, function_of, launch_of
from .entries import build_launches

POLL_S = 5.0


class _Lease:
    """The launches of one function. `open`: those whose result is not posted."""

    def __init__(self, client: Client, answer: Fields):
        self.client = client
        self.function: Function = function_of(answer["function"], "the leased function")
        self.open: dict[str, Json] = {}
        self.launches: list[Launch] = []
        self.garbled: dict[str, str] = {}
        for one in answer["launches"]:
            place = f"launch {one['id']}"
            self.open[place] = {"id": one["id"], "epoch": one["epoch"]}
            try:
                self.launches.append(launch_of(one["launch"], place))
            except PackError as error:
                self.garbled[place] = str(error)
        self._interval_s = max(1.0, answer["seconds"] / 3)
        self._renew_at = time.monotonic() + self._interval_s
        self._worker = Worker("lease", self._next)
        self._worker.wake()

    def _next(self) -> Next:
        wait_s = self._renew_at - time.monotonic()
        return wait_s if wait_s > 0 or self._worker.is_ended else self._renew

    def _renew(self) -> None:
        self._renew_at = time.monotonic() + self._interval_s
        with self._worker.condition:
            still = list(self.open.values())
        try:
            if still:
                self.client.request("POST", "/v1/captures/results", {"launches": still})
        except ApiError as error:
            print(f"wavetune build: keeping a lease: {error.detail}", file=sys.stderr)

    def post(self, places: list[str], what: Fields) -> int:
        """Says what became of launches; returns how many are another builder's meanwhile. They stay
        open where the server does not take it (_is_refusal)."""
        with self._worker.condition:
            own = {place: self.open.pop(place) for place in places if place in self.open}
        if not own:
            return 0
        try:
            results = [{**one, **what} for one in own.values()]
            return int(self.client.request("POST", "/v1/captures/results",
                                           {"launches": results})["stale"])
        except ApiError:
            with self._worker.condition:
                self.open.update(own)
            raise

    def end(self) -> None:
        self._worker.end(0.0)


def _is_refusal(error: ApiError) -> bool:
    """Whether the server does not take what it was sent; else it is away, or the token may not."""
    return error.status in (400, 404, 409, 413, 422)


def _reason(why: str) -> str:
    """A sentence as the server takes it: one line of at most 1,000 bytes."""
    return one_line(why, 900).encode()[:1000].decode(errors="ignore") or "no reason was given"


def push(client: Client, place: str, build: Path, key: SigningKey | None) -> None:
    """Stores a kernel folder and its build, blobs first, and the signatures of both."""
    kernel = load_kernel(place)
    text = (build / "build.json").read_bytes()
    reference = kernel.manifest.get("reference", {})
    sources = [(kernel.folder / source["path"]).read_bytes()
               for source in [*kernel.manifest["sources"],
                              *([reference["source"]] if reference else [])]]
    for data in [*sources, *(path.read_bytes() for path in sorted(build.glob("objects/*")))]:
        client.request("PUT", f"/v1/blobs/{digest_bytes(data)}", data)
    client.request("POST", "/v1/kernels", kernel.manifest)
    own = f"/v1/kernels/{kernel.hash}"
    digest = digest_bytes(text)
    client.request("PUT", f"{own}/builds/{digest}", json.loads(text))
    if key is not None:
        client.request("POST", f"{own}/signatures", key.code_signature(kernel.hash))
        client.request("POST", f"{own}/builds/{digest}/signatures",
                       key.code_signature(kernel.hash, digest))


def _build(lease: _Lease, arch: str, launches: list[Launch], terms: Terms) -> dict[str, int]:
    counts = {"built": 0, "refused": 0, "stale": 0}

    def refuse(places: list[str], why: str) -> None:
        counts["refused"] += len(places)
        counts["stale"] += lease.post(places, {"refused": _reason(why)})
        print(f"wavetune build: {lease.function.name}: {why}", file=sys.stderr)

    def finish(places: list[str], what: Fields) -> None:
        try:
            counts["stale"] += lease.post(places, what)
            counts["built"] += len(places)
        except ApiError as error:
            if not _is_refusal(error):
                raise
            if len(places) == 1:
                refuse(places, f"the server does not take it: {error.detail}")
                return
            for place in places:  # one that is not taken keeps none of the others
                finish([place], what)

    with tempfile.TemporaryDirectory(prefix="wavetune-build.") as scratch:
        built, refused = build_launches(lease.function, launches, arch, Path(scratch), terms)
        for one in refused:
            refuse([one["launch"]], one["why"])
        for one in built:
            for note in one["notes"]:
                print(f"wavetune build: {lease.function.name} {note}", file=sys.stderr)
            try:
                push(lease.client, one["folder"], Path(one["folder"]) / "build", terms.key)
            except ApiError as error:
                if not _is_refusal(error):
                    raise
                refuse(one["launches"], f"the server does not take the build: {error.detail}")
                continue
            if "of" not in one:
                finish(one["launches"], {"build": one["build"]})
            for place, stated in one.get("of", {}).items():
                finish([place], {"build": one["build"], **stated})
    return counts


def build_leased(client: Client, arches: list[str], is_waiting: bool,
                 terms: Terms) -> Json:
    """Builds until nothing is left, or is stopped; what `build --url --json` prints."""
    import triton
    report: Json = {"built": 0, "refused": 0, "stale": 0}
    started = time.monotonic()
    while True:
        answer = client.request("POST", "/v1/captures/leases",
                                {"triton": triton.__version__, "arches": arches})
        if answer is None and is_waiting:
            time.sleep(POLL_S)
            continue
        if answer is None:
            report["seconds"] = round(time.monotonic() - started, 3)
            return report
        try:
            lease = _Lease(client, answer)
        except PackError as error:  # no builder can read the function: each launch is refused
            results = [{"id": one["id"], "epoch": one["epoch"], "refused": _reason(str(error))}
                       for one in answer["launches"]]
            client.request("POST", "/v1/captures/results", {"launches": results})
            report["refused"] += len(results)
            continue
        try:
            for place, why in lease.garbled.items():
                report["refused"] += 1
                report["stale"] += lease.post([place], {"refused": _reason(why)})
            for arch in arches:
                own = [launch for launch in lease.launches
                       if launch.environment.get("arch") == arch]
                for name, n in (_build(lease, arch, own, terms) if own else {}).items():
                    report[name] += n
        finally:
            lease.end()
        print(canonical({"function": lease.function.name, **report}), file=sys.stderr)
