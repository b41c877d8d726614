"""A client of a wavetune server: submit jobs and wait for them, read measurements, make and move
releases.

    from wavetune import Client
    client = Client("https://tuning.example", token)  # or WAVETUNE_URL and _TOKEN or _TOKEN_FILE
    job = client.submit(kernel="sha256:…", key={"M": 4096}, space=space,
                        environment={"gpu": "AMD Instinct MI300X"})
    done, = client.wait(job["job"])
    client.measurements(done["job"]).frame()          # a pandas DataFrame

Answers are dicts as the API has them; api.py has their types. Requests that may be repeated are,
while the server is away or busy, until `patience_s` have passed. A client is used by one thread.
Only the standard library is needed; frame() needs pandas.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Sequence, Union
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from ._runtime.wire import BYTES_PER_S, JSON, Answer, Transport
from ._token_url import insecure_http, refusal

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import api

PAGE = 1000
BODY_MAX = 1 << 30
LONG_POLL_S = 60
BUSY = (429, 502, 503, 504)
ENDED = ("done", "failed", "cancelled")
_STEP_S = 0.2
Id = Union[str, int]


class ApiError(Exception):
    """The server refused a request, or did not answer it. `kind` is what a program decides by
    (docs/api.md): invalid, missing, conflict …; unreachable where no server answered. `status` is 0
    then, and `problem` the whole problem document."""

    def __init__(self, kind: str, detail: str, status: int = 0,
                 problem: Mapping[str, Any] | None = None):
        super().__init__(detail)
        self.kind, self.detail, self.status = kind, detail, status
        self.problem = dict(problem or {})

    @property
    def pointer(self) -> str | None:
        """Where in the request's body the mistake is, as a JSON Pointer."""
        return self.problem.get("pointer")


class Listing:
    """Items of a list, page by page as they are iterated; iterating again asks again."""

    def __init__(self, client: "Client", path: str, filters: Mapping[str, Any]):
        self._client, self._path = client, path
        self._filters = {name: value for name, value in filters.items() if value is not None}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        query = {**self._filters, "limit": PAGE}
        while True:
            page = self._client.request("GET", f"{self._path}?{urlencode(query)}")
            yield from page["items"]
            if page["next"] in (None, query.get("after")):
                return
            query["after"] = page["next"]

    def frame(self) -> Any:
        """All items as a pandas DataFrame; members of objects become columns such as key.M."""
        try:
            import pandas
        except ImportError:
            raise ImportError("frame() needs pandas: pip install pandas, or use the items as they "
                              "are") from None
        return pandas.json_normalize(list(self))


class Client:
    def __init__(self, url: str | None = None, token: str | None = None, *,
                 ca_file: str | None = None, insecure: bool | None = None,
                 timeout_s: float = 30.0, patience_s: float = 60.0):
        """`ca_file`: certificates (PEM) to trust in place of the system's. `insecure`: send the
        token over http:// to other hosts than loopback, too. `timeout_s`: of one request."""
        self.url = (url or os.environ.get("WAVETUNE_URL") or "http://127.0.0.1:7200").rstrip("/")
        self.timeout_s, self.patience_s = timeout_s, patience_s
        token = token or _token_of(os.environ)
        if insecure is None:
            insecure = insecure_http(os.environ)
        why = refusal(self.url, insecure) if token else None
        if why is not None:
            raise ValueError(why)
        ca_file = ca_file or os.environ.get("WAVETUNE_CA_FILE") or None
        self._transport = Transport(self.url, token, ca_file, _proxy_of(self.url))

    # Jobs

    def submit(self, **job: "Unpack[api.JobRequest]") -> "api.JobAnswer":
        """Submits a job. One that is known already is answered with its id."""
        return self.request("POST", "/v1/jobs", job)

    def submit_all(self, jobs: Sequence["api.JobRequest"]) -> List["api.JobAnswer"]:
        """Submits many in requests of 1,000."""
        answers = []
        for i in range(0, len(jobs), PAGE):
            answers += self.request("POST", "/v1/jobs", {"jobs": list(jobs[i:i + PAGE])})["jobs"]
        return answers

    def job(self, job: Id) -> "api.Job":
        return self.request("GET", f"/v1/jobs/{_segment(job)}")

    def jobs(self, *, state: str | None = None, tag: str | None = None,
             kernel: str | None = None) -> Listing:
        """api.JobItem of each, the newest first."""
        return Listing(self, "/v1/jobs", {"state": state, "tag": tag, "kernel": kernel})

    def wait(self, *jobs: Id, timeout_s: float | None = None) -> List["api.Job"]:
        """Waits until all have ended, at whatever times, and reads them. Raises TimeoutError."""
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        ended = []
        for one in jobs:
            after = 0
            while True:
                found = self.job(one)
                if found["state"] in ENDED:
                    ended.append(found)
                    break
                left_s = float(LONG_POLL_S)
                if ends_s is not None:
                    left_s = min(left_s, ends_s - time.monotonic())
                if left_s <= 0:
                    raise TimeoutError(f"job {one} is {found['state']}: "
                                       f"{found.get('waiting') or found['stage']}")
                events = self.request(
                    "GET",
                    f"/v1/jobs/{_segment(one)}/events?after={after}&wait={max(1, int(left_s))}",
                    timeout_s=self.timeout_s + left_s)["items"]
                after = max([after, *(event["event"] for event in events)])
        return ended

    def cancel(self, job: Id, any: bool = False) -> "api.Job":
        """With `any` also a job that others submitted, which needs the role operator."""
        return self.request("DELETE", f"/v1/jobs/{_segment(job)}" + ("?any=true" if any else ""))

    def measurements(self, job: Id) -> Listing:
        """api.Measurement of each."""
        return Listing(self, f"/v1/jobs/{_segment(job)}/measurements", {})

    # Releases

    def releases(self) -> Listing:
        """api.ListedRelease of each, the newest first."""
        return Listing(self, "/v1/releases", {})

    def release(self, digest: str) -> dict[str, Any]:
        return self.request("GET", f"/v1/releases/{_segment(digest)}")

    def publish(self, environment: "api.Environment", /, channel: str | None = None,
                **more: "Unpack[api.ReleaseRequest]") -> "api.ReleaseAnswer":
        """Makes a release of the winners for a channel. `wavetune publish` makes signed entries."""
        answer = self.request("POST", "/v1/releases", {"environment": environment, **more})
        if channel is not None:
            self.promote(answer["release"], channel)
        return answer

    def promote(self, release: str, channel: str) -> "api.ChannelEntry":
        return self.request("PUT", f"/v1/channels/{_segment(channel)}", {"release": release})

    # Captures, policies and their proposals

    def captures(self) -> Listing:
        """api.CaptureItem of each captured function."""
        return Listing(self, "/v1/captures", {})

    def tune_captures(self, *functions: Id, name: str | None = None,
                      keys: Sequence["api.Key"] | None = None, run: str | None = None,
                      priority: int | None = None,
                      budget: "api.Budget | None" = None) -> List["api.CaptureKeyJob"]:
        """Makes jobs of the built keys of these functions, by their ids, or with `name` of those
        that fit a pattern (api.CaptureTune)."""
        stated = {"functions": functions or None, "name": name, "keys": keys, "run": run,
                  "priority": priority, "budget": budget}
        body = {member: value for member, value in stated.items() if value is not None}
        return self.request("POST", "/v1/captures/tune", body)["items"]

    def policy(self) -> "api.Policy":
        """That of this token."""
        return self.request("GET", "/v1/policy")

    def set_policy(self, mode: str, /, **more: "Unpack[api.Policy]") -> "api.Policy":
        """Replaces the policy of this token: what is not stated gets its default."""
        return self.request("PUT", "/v1/policy", {"mode": mode, **more})

    def policies(self) -> Listing:
        """api.Policy of each that this token may see: an operator's sees all."""
        return Listing(self, "/v1/policies", {})

    def remove_policy(self, policy: Id) -> None:
        self.request("DELETE", f"/v1/policies/{_segment(policy)}")

    def suggestions(self) -> List["api.PolicySuggestion"]:
        return self.request("GET", f"/v1/policy/suggestions?limit={PAGE}")["items"]

    def run_policy(self, top: int = 100) -> List["api.PolicyDecision"]:
        """Makes the suggested jobs, at most `top`, as far as the budget of the day allows."""
        return self.request("POST", "/v1/policy/run", {"top": top})["items"]

    def proposals(self) -> Listing:
        """api.Proposal of each, the newest first, without its changes."""
        return Listing(self, "/v1/proposals", {})

    def proposal(self, proposal: Id) -> "api.Proposal":
        return self.request("GET", f"/v1/proposals/{_segment(proposal)}")

    def promote_proposal(self, proposal: Id) -> "api.ChannelEntry":
        """Points the channel at the proposal's release, unsigned, if it still has the entry that
        the proposal was compared with."""
        return self.request("POST", f"/v1/proposals/{_segment(proposal)}/promote", {})

    def reject_proposal(self, proposal: Id, reason: str) -> "api.Proposal":
        return self.request("POST", f"/v1/proposals/{_segment(proposal)}/reject",
                            {"reason": reason})

    # Any route

    def list(self, path: str, **filters: Any) -> Listing:
        """The items of any route that answers a list: list("/v1/agents")."""
        return Listing(self, path, filters)

    def request(self, method: str, path: str, body: Any = None,
                timeout_s: float | None = None) -> Any:
        """The JSON of an answer; None where it has none. `body`: JSON, or bytes. Raises ApiError.
        Every request of this client may be repeated: what it writes is identified by its content
        (docs/api.md)."""
        gives_up_s = time.monotonic() + self.patience_s
        step_s = _STEP_S
        while True:
            try:
                return self._once(method, path, body, timeout_s or self.timeout_s)
            except ApiError as error:
                is_temporary = error.status in BUSY or error.kind == "unreachable"
                wait_s = max(step_s, _number(error.problem.get("retry_after")))
                if not is_temporary or time.monotonic() + wait_s > gives_up_s:
                    raise
                time.sleep(wait_s)
                step_s = min(2 * step_s, 5.0)

    def _once(self, method: str, path: str, body: Any, timeout_s: float) -> Any:
        headers, data = {"Accept": "application/json"}, body
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/octet-stream"
        elif body is not None:
            headers.update(JSON)
            data = json.dumps(body).encode()
        try:
            answer = self._transport.exchange(method, path, data, headers, limit=BODY_MAX,
                                              first_s=timeout_s + len(data or b"") / BYTES_PER_S)
            if 200 <= answer.status < 300:
                return json.loads(answer.body) if answer.body else None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            self._transport.close()
            form = "JSON" if isinstance(error, (ValueError, RecursionError)) else "HTTP"
            what = "does not answer" if isinstance(error, OSError) else \
                f"answered {method} {path} with what is no {form}"
            raise ApiError("unreachable",
                           f"the server at {self.url} {what}: {error!s:.300}") from None
        raise _refused(answer)


def _refused(answer: Answer) -> ApiError:
    try:
        problem = json.loads(answer.body)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        problem = {"kind": "unavailable" if answer.status >= 500 else "invalid",
                   "detail": answer.text()}
    if "retry-after" in answer.headers:
        problem["retry_after"] = _number(answer.headers["retry-after"])
    return ApiError(str(problem.get("kind", "invalid")), f"{answer.status}: "
                    f"{problem.get('detail', '')}", answer.status, problem)


def _proxy_of(url: str) -> tuple[str, int] | None:
    """Of $https_proxy, $no_proxy and so on, never for loopback."""
    parts = urlsplit(url)
    found = urlsplit(getproxies().get(parts.scheme, ""))
    is_loopback = refusal(f"http://{parts.netloc}", False) is None
    if not found.hostname or is_loopback or proxy_bypass(parts.netloc):
        return None
    return found.hostname, found.port or 80


def _number(value: Any) -> float:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return 0.0


def _segment(value: Id) -> str:
    return quote(str(value), safe=":")


def _token_of(variables: Mapping[str, str]) -> str | None:
    path = variables.get("WAVETUNE_TOKEN_FILE")
    if path:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    return variables.get("WAVETUNE_TOKEN") or None
