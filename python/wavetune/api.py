"""The types of the API, for editors and type checkers: what wavetune.Client takes and answers.

Written by python3 tests/reference.py from the schemas of /openapi.json: change those, then run it.
"""

from typing import Any, Dict, List, Literal, TypedDict, Union

Agent = TypedDict("Agent", {
    "agent": str,
    "name": str,
    "version": str,
    "state": Literal['live', 'lost', 'draining', 'ended'],
    "drain_reason": Union[str, None],
    "drained_by": Union["By", None],
    "drained_by_id": Union["ById", None],
    "removed_at": Union["Time", None],
    "removed_by": Union["By", None],
    "removed_by_id": Union["ById", None],
    "trusted_keys": Union[List["Digest"], None],
    "devices": List[Dict[str, Any]],
    "refused": Union[Dict[str, Any], None],
    "last_seen": Union["Time", None],
})

AgentAnswer = TypedDict("AgentAnswer", {
    "agent": str,
    "heartbeat_every_ms": int,
    "lease_ms": int,
    "reclaimed": int,
    "token": str,
    "rotate_in_ms": Union[int, None],
}, total=False)

AgentList = TypedDict("AgentList", {
    "items": List["Agent"],
    "next": "Next",
})

AgentRequest = TypedDict("AgentRequest", {
    "agent": Union[str, None],
    "boot": str,
    "name": str,
    "version": str,
    "machine": Union[str, None],
    "trusted_keys": List["Digest"],
    "devices": List[Dict[str, Any]],
}, total=False)

AgentTokenAnswer = TypedDict("AgentTokenAnswer", {
    "token": str,
    "rotate_in_ms": Union[int, None],
})

AgreementClass = Literal['none', 'bitwise', 'interpreted', 'agrees', 'disagrees']

AuditEntry = TypedDict("AuditEntry", {
    "id": Union["Id", None],
    "at": Union["Time", None],
    "token": Union[str, None],
    "token_id": Union["ById", None],
    "role": Union[str, None],
    "peer": Union[str, None],
    "action": Union[str, None],
    "object": Union[str, None],
    "detail": Union[Dict[str, Any], None],
})

AuditList = TypedDict("AuditList", {
    "items": List["AuditEntry"],
    "next": "Next",
})

BaselineFrom = Literal['incumbent', 'imported', 'default', 'first']

BaselineItem = TypedDict("BaselineItem", {
    "at": "Time",
    "subject": str,
    "job": Union["Id", None],
    "name": Union[str, None],
    "key": Union["Key", None],
    "config": Union[int, None],
    "median_us": float,
    "counts": bool,
    "device_seconds": Union[float, None],
    "outcomes": Union[Dict[str, int], None],
})

BaselineList = TypedDict("BaselineList", {
    "items": List["BaselineItem"],
    "rule": Dict[str, Any],
})

BlobAnswer = TypedDict("BlobAnswer", {
    "blob": Union["Digest", None],
    "size": Union[int, None],
})

Budget = TypedDict("Budget", {
    "device_seconds": float,
})

Build = TypedDict("Build", {
    "kernel": "Digest",
    "toolchain": Dict[str, Any],
    "arch": str,
    "warp_size": int,
    "variants": List[Dict[str, Any]],
})

BuildAnswer = TypedDict("BuildAnswer", {
    "build": "Digest",
})

BuildItem = TypedDict("BuildItem", {
    "build": Union["Digest", None],
    "toolchain": Union[Dict[str, Any], None],
    "arch": Union[str, None],
    "variants": Union[int, None],
    "created_at": Union["Time", None],
    "made_by": Union[str, None],
    "made_by_id": Union["ById", None],
    "signatures": Union[List["CodeSignature"], None],
})

BuildList = TypedDict("BuildList", {
    "items": List["BuildItem"],
    "next": "Next",
})

By = Union[str, None]

ById = Union[str, None]

Bytes = str

CacheMatch = TypedDict("CacheMatch", {
    "rule": Union[Literal['exact', 'unstated', 'minor', 'compatible'], None],
    "differs": Union[Dict[str, Any], None],
    "compatibility": int,
    "reason": str,
}, total=False)

Campaign = TypedDict("Campaign", {
    "tag": str,
    "run": str,
    "owners": List[str],
    "kernels": List[str],
    "queued": int,
    "running": int,
    "done": int,
    "failed": int,
    "cancelled": int,
    "jobs": int,
    "configs": int,
    "measurements": int,
    "device_seconds": float,
    "first_ms": int,
    "last_ms": Union[int, None],
    "to_go_s": Union[float, None],
})

CampaignList = TypedDict("CampaignList", {
    "as_of_ms": int,
    "items": List["Campaign"],
    "next": "Next",
})

Capture = TypedDict("Capture", {
    "function": Dict[str, Any],
    "example": Union[Dict[str, Any], None],
    "launches": List["CaptureLaunch"],
})

CaptureAnswer = TypedDict("CaptureAnswer", {
    "functions": int,
    "launches": int,
    "dropped": int,
})

CaptureItem = TypedDict("CaptureItem", {
    "id": Union["Id", None],
    "closure": Union["Digest", None],
    "name": Union[str, None],
    "owner": Union[str, None],
    "keys": Union[int, None],
    "waiting": Union[int, None],
    "building": Union[int, None],
    "built": Union[int, None],
    "refused": Union[int, None],
    "without_job": Union[int, None],
    "queued": Union[int, None],
    "tuning": Union[int, None],
    "tuned": Union[int, None],
    "undecided": Union[int, None],
    "failed": Union[int, None],
    "proposed": Union[int, None],
    "released": Union[int, None],
    "served": Union[int, None],
    "why": Union[str, None],
    "job": Union["Id", None],
    "proposal": Union["Id", None],
    "channel": Union[str, None],
    "waits_for": Union[str, None],
    "move": Union[Literal['builder', 'submitter', 'policy', 'agent', 'publisher'], None],
    "seen_at": Union["Time", None],
})

CaptureKeyJob = TypedDict("CaptureKeyJob", {
    "function": Union["Id", None],
    "name": Union[str, None],
    "kernel": "Digest",
    "key": Union["Key", None],
    "environment": Union["Environment", None],
    "state": Union[str, None],
    "job": "Id",
    "created": bool,
    "why": str,
}, total=False)

CaptureLaunch = TypedDict("CaptureLaunch", {
    "id": Union["Id", None],
    "key": Union["Key", None],
    "state": Union[Literal['waiting', 'building', 'built', 'refused', 'queued', 'tuning', 'tuned', 'undecided', 'failed', 'cancelled', 'released', 'proposed', 'served'], None],
    "seen_at": Union["Time", None],
    "seen": Union[int, None],
    "arch": Union[str, None],
    "triton": Union[str, None],
    "image": Union[str, None],
    "refused": str,
    "build": "Digest",
    "kernel": "Digest",
    "job": "Id",
    "reason": str,
    "not_queued": str,
    "proposal": "Id",
    "channel": str,
    "waits_for": Union[str, None],
    "move": Union[Literal['builder', 'submitter', 'policy', 'agent', 'publisher'], None],
}, total=False)

CaptureLease = TypedDict("CaptureLease", {
    "function": Dict[str, Any],
    "seconds": int,
    "launches": List[Dict[str, Any]],
})

CaptureLeaseRequest = TypedDict("CaptureLeaseRequest", {
    "triton": str,
    "arches": List[str],
})

CaptureList = TypedDict("CaptureList", {
    "items": List["CaptureItem"],
    "next": Union[str, None],
})

CaptureReport = TypedDict("CaptureReport", {
    "functions": Union[List["CapturedFunction"], None],
    "launches": Union[List["CapturedLaunch"], None],
}, total=False)

CaptureResults = TypedDict("CaptureResults", {
    "launches": List[Dict[str, Any]],
})

CaptureResultsAnswer = TypedDict("CaptureResultsAnswer", {
    "accepted": int,
    "stale": int,
})

CaptureTune = TypedDict("CaptureTune", {
    "functions": List[Union[str, int]],
    "name": str,
    "keys": List["Key"],
    "run": str,
    "priority": int,
    "budget": Union["Budget", None],
}, total=False)

CaptureTuneAnswer = TypedDict("CaptureTuneAnswer", {
    "items": List["CaptureKeyJob"],
    "left": int,
})

CapturedFunction = TypedDict("CapturedFunction", {
    "version": int,
    "closure": "Digest",
    "name": str,
    "parts": Any,
})

CapturedLaunch = TypedDict("CapturedLaunch", {
    "version": int,
    "closure": "Digest",
    "key": List[str],
    "key_names": List[str],
    "key_values": Any,
    "environment": "Environment",
    "triton": str,
    "image": str,
}, total=False)

ChannelEntry = TypedDict("ChannelEntry", {
    "channel": str,
    "counter": int,
    "environment": "Environment",
    "expires": str,
    "regime": Literal['cold', 'warm'],
    "release": "Digest",
    "tag": str,
    "signatures": List["Signature"],
    "updated_at": "Time",
    "moved_by": "By",
    "moved_by_id": "ById",
    "match": "CacheMatch",
}, total=False)

ChannelList = TypedDict("ChannelList", {
    "items": List["ChannelEntry"],
    "next": "Next",
})

ChannelRequest = TypedDict("ChannelRequest", {
    "release": "Digest",
    "counter": Union[int, None],
    "expires": Union[str, None],
    "signatures": Union[List["Signature"], None],
}, total=False)

Choice = TypedDict("Choice", {
    "code": str,
    "config": "Config",
    "function": "Digest",
    "key": List[str],
    "tuning_ms": float,
}, total=False)

ChoiceLines = str

ChoicesAnswer = TypedDict("ChoicesAnswer", {
    "choices": List["Choice"],
    "code": Dict[str, Dict[str, "Digest"]],
})

ChoicesRequest = TypedDict("ChoicesRequest", {
    "functions": List[Dict[str, Any]],
})

ChoicesSigning = TypedDict("ChoicesSigning", {
    "choices": "Digest",
    "signature": "Signature",
})

CodeManifest = TypedDict("CodeManifest", {
    "name": str,
    "language": Literal['hip', 'triton', 'c', 'external'],
    "key": List[str],
    "entry": str,
    "sources": List[Dict[str, Any]],
    "arguments": List[Dict[str, Any]],
    "defines": Union[Dict[str, Union[str, int]], None],
    "launch": Dict[str, Any],
    "cases": Literal['build'],
    "reference": Union[Dict[str, Any], None],
    "flops": Union[str, int],
    "bytes": Union[str, int],
    "exports": Union[Dict[str, Dict[str, Any]], None],
}, total=False)

CodeSignature = TypedDict("CodeSignature", {
    "key": "Digest",
    "expires": str,
    "signature": str,
}, total=False)

CodeSignatureRequest = TypedDict("CodeSignatureRequest", {
    "public_key": str,
    "signature": str,
    "expires": Union[str, None],
}, total=False)

CodeSignatures = TypedDict("CodeSignatures", {
    "kernel": Union["Digest", None],
    "build": "Digest",
    "signatures": Union[List["CodeSignature"], None],
}, total=False)

CompatibilityItem = TypedDict("CompatibilityItem", {
    "id": Union["Id", None],
    "asked": Union["Environment", None],
    "served": Union["Environment", None],
    "reason": Union[str, None],
    "made_by": Union[str, None],
    "made_by_id": Union["ById", None],
    "made_at": Union["Time", None],
})

CompatibilityList = TypedDict("CompatibilityList", {
    "items": List["CompatibilityItem"],
    "next": "Next",
})

CompatibilityRequest = TypedDict("CompatibilityRequest", {
    "asked": "Environment",
    "served": "Environment",
    "reason": str,
}, total=False)

Config = Dict[str, Union[int, str, bool, None]]

Cost = TypedDict("Cost", {
    "by": str,
    "from_ms": Union[int, None],
    "to_ms": Union[int, None],
    "items": List["CostItem"],
    "device_seconds": float,
    "jobs": int,
    "measurements": int,
})

CostItem = TypedDict("CostItem", {
    "name": str,
    "device_seconds": float,
    "jobs": int,
    "measurements": int,
})

CountersReport = TypedDict("CountersReport", {
    "tag": str,
    "hits": int,
    "misses": int,
    "unfit": int,
    "failures": int,
    "saved_ms": float,
}, total=False)

DemandAnswer = TypedDict("DemandAnswer", {
    "accepted": Union[int, None],
    "ignored": Union[int, None],
    "policy": Union[Literal['off', 'suggest'], None],
})

DemandItem = TypedDict("DemandItem", {
    "kernel": Union["Digest", None],
    "name": Union[str, None],
    "key": Union["Key", None],
    "environment": Union["Environment", None],
    "tag": Union[str, None],
    "regime": Union["Regime", None],
    "hits": Union[int, None],
    "misses": Union[int, None],
    "tuning_ms": Union[float, None],
    "kernel_ms": Union[float, None],
    "gain": Union[float, None],
    "saved_ms": Union[float, None],
    "last_at": Union["Time", None],
    "refused": Union[str, None],
})

DemandList = TypedDict("DemandList", {
    "items": List["DemandItem"],
    "missed": List["DemandMissed"],
    "next": None,
    "policy": Union[Literal['off', 'suggest'], None],
})

DemandMissed = TypedDict("DemandMissed", {
    "function": Union["Digest", None],
    "name": Union[str, None],
    "key": Union[List[str], None],
    "environment": Union["Environment", None],
    "tag": Union[str, None],
    "regime": Union["Regime", None],
    "misses": Union[int, None],
    "tuning_ms": Union[float, None],
    "saved_ms": Union[float, None],
    "why": Union[str, None],
    "capture": Union["Id", None],
    "last_at": Union["Time", None],
})

DemandQueueAnswer = TypedDict("DemandQueueAnswer", {
    "items": List["DemandQueued"],
})

DemandQueueRequest = TypedDict("DemandQueueRequest", {
    "top": int,
})

DemandQueued = TypedDict("DemandQueued", {
    "kernel": Union["Digest", None],
    "name": Union[str, None],
    "key": Union["Key", None],
    "job": "Id",
    "refused": str,
}, total=False)

DemandReport = TypedDict("DemandReport", {
    "environment": "Environment",
    "image": Union[str, None],
    "tag": str,
    "regime": "Regime",
    "items": List[Dict[str, Any]],
    "missed": List[Dict[str, Any]],
}, total=False)

Digest = str

DrainRequest = TypedDict("DrainRequest", {
    "device": Union[str, None],
    "reason": Union[str, None],
}, total=False)

Environment = TypedDict("Environment", {
    "rocm": str,
    "cuda": str,
    "cpu": str,
    "torch": str,
    "triton": str,
    "gpu": str,
    "arch": str,
    "compute_units": int,
    "partition": str,
}, total=False)

EnvironmentItem = TypedDict("EnvironmentItem", {
    "environment": "Environment",
    "digest": "Digest",
    "agents": int,
    "last_seen": Union["Time", None],
})

EnvironmentList = TypedDict("EnvironmentList", {
    "items": List["EnvironmentItem"],
    "next": "Next",
})

EventList = TypedDict("EventList", {
    "items": List["JobEvent"],
    "next": "Next",
})

ExternalManifest = TypedDict("ExternalManifest", {
    "name": str,
    "language": Literal['hip', 'triton', 'c', 'external'],
    "key": List[str],
    "exports": Dict[str, Dict[str, Any]],
})

Finals = TypedDict("Finals", {
    "devices": int,
}, total=False)

Flagged = TypedDict("Flagged", {
    "job": "Id",
    "ratio": float,
    "lower": float,
    "upper": float,
    "at": "Time",
}, total=False)

Flat = Dict[str, Union[int, float, str, bool, None]]

Fleet = TypedDict("Fleet", {
    "as_of_ms": int,
    "nodes": int,
    "devices": Dict[str, Any],
    "queue": List[Dict[str, Any]],
    "rate": Dict[str, Any],
    "to_go": Dict[str, Any],
})

FleetDevice = TypedDict("FleetDevice", {
    "device": str,
    "backend": str,
    "gpu": Union[str, None],
    "arch": Union[str, None],
    "partition": Union[str, None],
    "state": Literal['ended', 'lost', 'yielded', 'drifted', 'drained', 'measuring', 'idle'],
    "since_ms": Union[int, None],
    "reason": Union[str, None],
    "by": Union[str, None],
    "job": Union["Id", None],
    "kernel": Union[str, None],
    "key": Union["Key", None],
    "tag": Union[str, None],
    "run": Union[str, None],
    "stage": Union[str, None],
    "config": Union[int, None],
    "of": Union[int, None],
    "left": Union[int, None],
})

FleetNode = TypedDict("FleetNode", {
    "agent": str,
    "host": str,
    "version": str,
    "seen_ms": int,
    "reason": Union[str, None],
    "by": Union[str, None],
    "devices": List["FleetDevice"],
}, total=False)

FleetNodes = TypedDict("FleetNodes", {
    "as_of_ms": int,
    "items": List["FleetNode"],
    "next": "Next",
})

GcAnswer = TypedDict("GcAnswer", {
    "releases": Union[List[Dict[str, Any]], None],
    "files": Union[Dict[str, Any], None],
    "demand": Union[int, None],
    "fetches": Union[int, None],
    "measurements": Union[Dict[str, Any], None],
    "more": bool,
    "dry_run": bool,
    "keep_days": Union[int, None],
})

GcRequest = TypedDict("GcRequest", {
    "dry_run": bool,
    "keep_days": int,
    "measurements": bool,
}, total=False)

HandBackRequest = TypedDict("HandBackRequest", {
    "epoch": int,
    "cause": Union[Literal['spent', 'unsigned', 'unreadable', 'yielded', 'device', 'failed', 'stopped', 'expired', 'unstored'], None],
    "reason": Union[str, None],
    "opening_us": int,
}, total=False)

HeartbeatAnswer = TypedDict("HeartbeatAnswer", {
    "heartbeat_every_ms": int,
    "draining": bool,
})

HeartbeatRequest = TypedDict("HeartbeatRequest", {
    "boot": str,
    "yielded": List[Dict[str, Any]],
}, total=False)

HelionConfig = TypedDict("HelionConfig", {
    "config": str,
    "key": Dict[str, Any],
    "flat_config": Union[str, List[Any], None],
    "backend_cache_key": Union[str, None],
}, total=False)

HelionConfigs = List["HelionConfig"]

Id = str

Identity = Dict[str, Any]

ImageAnswer = TypedDict("ImageAnswer", {
    "image": "Digest",
})

ImportAnswer = TypedDict("ImportAnswer", {
    "kernels": Union[List[Dict[str, Any]], None],
    "environment": Union["Environment", None],
    "missing": Union[List[str], None],
    "tag": Union[str, None],
    "added": Union[int, None],
    "changed": Union[int, None],
    "known": Union[int, None],
})

ImportItem = TypedDict("ImportItem", {
    "import": Union["Id", None],
    "kernel": Union["Digest", None],
    "name": Union[str, None],
    "key": Union["Key", None],
    "environment": Union["Environment", None],
    "tag": Union[str, None],
    "config": Union["Flat", None],
    "ms": Union[List[float], None],
    "provenance": Union["Flat", None],
    "format": Union[str, None],
    "imported_by": Union[str, None],
    "imported_by_id": Union["ById", None],
    "imported_at": Union["Time", None],
})

ImportList = TypedDict("ImportList", {
    "items": List["ImportItem"],
    "next": "Next",
})

ImportRequest = TypedDict("ImportRequest", {
    "format": str,
    "environment": "Environment",
    "tag": str,
    "kernels": List[Dict[str, Any]],
}, total=False)

ImportedEntry = TypedDict("ImportedEntry", {
    "key": "Key",
    "config": "Flat",
    "ms": List[float],
    "provenance": "Flat",
}, total=False)

InductorConfig = TypedDict("InductorConfig", {
    "num_warps": int,
    "num_stages": int,
    "configs_hash": str,
})

Job = TypedDict("Job", {
    "job": "Id",
    "state": "JobState",
    "stage": "Stage",
    "round": int,
    "kernel": "Digest",
    "name": str,
    "key": "Key",
    "space_digest": "Digest",
    "environment": "Environment",
    "tag": str,
    "run": str,
    "regime": "Regime",
    "purpose": Literal['tune', 'revalidate'],
    "priority": int,
    "budget": Union["Budget", None],
    "runner": str,
    "build": Union["Digest", None],
    "baseline": int,
    "baseline_from": "BaselineFrom",
    "seed": int,
    "search": Union["Search", None],
    "finals": "Finals",
    "configs": int,
    "measured": int,
    "outcomes": Dict[str, int],
    "spent_device_seconds": float,
    "opening_device_seconds": float,
    "reason": Union[str, None],
    "created_at": "Time",
    "finished_at": Union["Time", None],
    "submitted_by": Union["By", None],
    "submitted_by_id": Union["ById", None],
    "cancelled_by": Union["By", None],
    "cancelled_by_id": Union["ById", None],
    "retry_of": Union["Id", None],
    "winner": Union["JobWinner", None],
    "waiting": Union[str, None],
    "handed_back": Union[str, None],
    "space": "Space",
    "flagged": Union["Flagged", None],
    "quarantined": Union[str, None],
    "measurements_removed_at": Union["Time", None],
})

JobAnswer = TypedDict("JobAnswer", {
    "job": "Id",
    "created": bool,
    "state": "JobState",
    "configs": int,
    "baseline_from": "BaselineFrom",
    "environment": "Environment",
    "agents": "MatchingAgents",
})

JobAnswers = Union["JobAnswer", Dict[str, Any]]

JobEvent = TypedDict("JobEvent", {
    "event": int,
    "kind": str,
    "at": "Time",
    "detail": Dict[str, Any],
})

JobItem = TypedDict("JobItem", {
    "job": "Id",
    "state": "JobState",
    "stage": "Stage",
    "round": int,
    "kernel": "Digest",
    "name": str,
    "key": "Key",
    "space_digest": "Digest",
    "environment": "Environment",
    "tag": str,
    "run": str,
    "regime": "Regime",
    "purpose": Literal['tune', 'revalidate'],
    "priority": int,
    "budget": Union["Budget", None],
    "runner": str,
    "build": Union["Digest", None],
    "baseline": int,
    "baseline_from": "BaselineFrom",
    "seed": int,
    "search": Union["Search", None],
    "finals": "Finals",
    "configs": int,
    "measured": int,
    "outcomes": Dict[str, int],
    "spent_device_seconds": float,
    "opening_device_seconds": float,
    "reason": Union[str, None],
    "created_at": "Time",
    "finished_at": Union["Time", None],
    "submitted_by": Union["By", None],
    "submitted_by_id": Union["ById", None],
    "cancelled_by": Union["By", None],
    "cancelled_by_id": Union["ById", None],
    "retry_of": Union["Id", None],
    "winner": Union["JobWinnerValues", None],
})

JobList = TypedDict("JobList", {
    "items": List["JobItem"],
    "next": "Next",
})

JobRequest = TypedDict("JobRequest", {
    "kernel": "Digest",
    "key": "Key",
    "space": "Space",
    "environment": "Environment",
    "tag": str,
    "run": str,
    "regime": "Regime",
    "purpose": Literal['tune', 'revalidate'],
    "priority": int,
    "budget": Union["Budget", None],
    "runner": Union[Literal['build'], None],
    "search": Union["Search", None],
    "finals": Union["Finals", None],
}, total=False)

JobRequests = Union["JobRequest", Dict[str, Any]]

JobSelection = TypedDict("JobSelection", {
    "jobs": List[Union[str, int]],
    "tag": str,
    "run": str,
    "kernel": str,
    "user": str,
    "up_to": "Id",
    "after": "Id",
    "dry_run": bool,
    "any": bool,
}, total=False)

JobState = Literal['queued', 'running', 'done', 'failed', 'cancelled']

JobWinner = TypedDict("JobWinner", {
    "config": Union[int, None],
    "config_values": Union["Config", None],
    "agreement": Union["AgreementClass", None],
    "interpreted": Union[bool, None],
    "verdict": Union[Dict[str, Any], None],
    "resources": Union[List["Resources"], None],
})

JobWinnerValues = TypedDict("JobWinnerValues", {
    "config": Union[int, None],
    "config_values": Union["Config", None],
    "agreement": Union["AgreementClass", None],
    "interpreted": Union[bool, None],
})

JobsCancelled = TypedDict("JobsCancelled", {
    "cancelled": int,
    "ended": int,
    "more": bool,
    "newest": str,
})

JobsProgress = TypedDict("JobsProgress", {
    "queued": int,
    "running": int,
    "done": int,
    "failed": int,
    "cancelled": int,
    "configs": int,
    "measured": int,
    "ended": List[Dict[str, Any]],
})

JobsRetried = TypedDict("JobsRetried", {
    "retried": List[Dict[str, Any]],
    "refused": List[Dict[str, Any]],
    "next": Union[str, None],
    "retriable": int,
    "newest": str,
}, total=False)

Kernel = TypedDict("Kernel", {
    "kernel": Union["Digest", None],
    "manifest": Union["Manifest", None],
    "created_at": Union["Time", None],
    "made_by": Union[str, None],
    "made_by_id": Union["ById", None],
    "signatures": Union[List["CodeSignature"], None],
})

KernelAnswer = TypedDict("KernelAnswer", {
    "kernel": "Digest",
    "name": str,
})

KernelItem = TypedDict("KernelItem", {
    "kernel": Union["Digest", None],
    "name": Union[str, None],
    "language": Union[str, None],
    "created_at": Union["Time", None],
    "made_by": Union[str, None],
    "made_by_id": Union["ById", None],
    "signatures": Union[List["CodeSignature"], None],
})

KernelList = TypedDict("KernelList", {
    "items": List["KernelItem"],
    "next": "Next",
})

Key = Dict[str, Union[int, float, str, bool, None]]

Lease = TypedDict("Lease", {
    "lease": str,
    "epoch": int,
    "kind": Union[str, None],
    "expires_in_ms": int,
    "renew_every_ms": int,
    "job": "Id",
    "kernel": "Digest",
    "manifest": "Manifest",
    "key": "Key",
    "space": "Space",
    "build": Union["Digest", None],
    "configs": "Ranges",
    "signatures": List["CodeSignature"],
    "build_signatures": List["CodeSignature"],
    "likely": Union[List[int], None],
    "best_ratio": Union[float, None],
    "device_us": Union[int, None],
    "budget_us": Union[int, None],
    "baseline": int,
    "stage": "Stage",
    "round": int,
    "process": int,
    "seed": int,
    "regime": Union["Regime", None],
}, total=False)

LeaseRequest = TypedDict("LeaseRequest", {
    "agent": str,
    "device": str,
    "nonce": str,
    "wait": float,
}, total=False)

ListedRelease = TypedDict("ListedRelease", {
    "release": "Digest",
    "environment": "Environment",
    "tag": str,
    "regime": Literal['cold', 'warm'],
    "winners": int,
    "created_at": "Time",
    "made_by": "By",
    "made_by_id": "ById",
})

Manifest = Union["CodeManifest", "ExternalManifest"]

MatchingAgents = TypedDict("MatchingAgents", {
    "matching": int,
    "refusing": Dict[str, Any],
    "nearest": Union[Dict[str, Any], None],
}, total=False)

Measurement = TypedDict("Measurement", {
    "id": Union["Id", None],
    "lease": Union["Id", None],
    "epoch": Union[int, None],
    "agent": Union[str, None],
    "device": Union[str, None],
    "stage": Union[Literal['screen', 'halving', 'final'], None],
    "seq": int,
    "config": int,
    "process": int,
    "round": int,
    "outcome": Literal['correct', 'compile', 'runtime', 'correctness', 'timeout', 'constraints'],
    "detail": Union[str, None],
    "timer": Union[str, None],
    "regime": Union["Regime", None],
    "samples_us": List[float],
    "baseline_us": List[float],
    "clock_mhz": Union[float, None],
    "temperature_c": Union[float, None],
    "compile_ms": Union[int, None],
    "device_us": Union[int, None],
    "vgprs": Union[int, None],
    "agprs": Union[int, None],
    "spills": Union[int, None],
    "lds_bytes": Union[int, None],
    "occupancy": Union[int, None],
    "end": Union[str, None],
    "conditions": Union[Dict[str, Any], None],
    "object": Union["Digest", None],
    "late": bool,
    "quarantined": bool,
    "at": Union["Time", None],
})

MeasurementList = TypedDict("MeasurementList", {
    "items": List["Measurement"],
    "next": "Next",
})

MeasurementRequest = TypedDict("MeasurementRequest", {
    "seq": int,
    "config": int,
    "process": int,
    "round": int,
    "outcome": Literal['correct', 'compile', 'runtime', 'correctness', 'timeout', 'constraints'],
    "detail": Union[str, None],
    "timer": Union[str, None],
    "regime": Union["Regime", None],
    "samples_us": List[float],
    "baseline_us": List[float],
    "clock_mhz": Union[float, None],
    "temperature_c": Union[float, None],
    "compile_ms": Union[int, None],
    "device_us": Union[int, None],
    "vgprs": Union[int, None],
    "agprs": Union[int, None],
    "spills": Union[int, None],
    "lds_bytes": Union[int, None],
    "occupancy": Union[int, None],
    "end": Union[str, None],
    "conditions": Union[Dict[str, Any], None],
    "baseline_failed": bool,
    "object": Union["Digest", None],
}, total=False)

Next = Union[str, None]

Object = Dict[str, Any]

OverrideItem = TypedDict("OverrideItem", {
    "id": Union["Id", None],
    "kind": Union[Literal['pin', 'ban'], None],
    "kernel": Union[str, None],
    "key": Union["Key", None],
    "environment": Union["Environment", None],
    "tag": Union[str, None],
    "config": Union["Config", None],
    "reason": Union[str, None],
    "until": Union["Time", None],
    "ended": bool,
    "made_by": Union[str, None],
    "made_by_id": Union["ById", None],
    "made_at": Union["Time", None],
})

OverrideList = TypedDict("OverrideList", {
    "items": List["OverrideItem"],
    "next": "Next",
})

OverrideRequest = TypedDict("OverrideRequest", {
    "kind": Literal['pin', 'ban'],
    "kernel": str,
    "key": Union["Key", None],
    "environment": Union["Environment", None],
    "tag": Union[str, None],
    "config": "Config",
    "reason": str,
    "until": Union[str, None],
    "unknown": bool,
}, total=False)

OwnToken = TypedDict("OwnToken", {
    "name": str,
    "role": "Role",
    "expires_at": Union["Time", None],
    "channels": Union[List[str], None],
    "operations": List[str],
})

PoisonEntry = TypedDict("PoisonEntry", {
    "id": Union["Id", None],
    "scope": Union[Literal['config', 'object', 'kernel'], None],
    "kernel": Union["Digest", None],
    "name": Union[str, None],
    "build": Union["Digest", None],
    "object": Union["Digest", None],
    "config": Union[Dict[str, Any], None],
    "environment": Union["Environment", None],
    "reason": Union[str, None],
    "evidence": Union[List[Dict[str, Any]], None],
    "at": Union["Time", None],
    "released_at": Union["Time", None],
    "released_by": Union["By", None],
    "released_by_id": Union["ById", None],
    "release_reason": Union[str, None],
})

PoisonList = TypedDict("PoisonList", {
    "items": List["PoisonEntry"],
    "next": Union[str, None],
})

PoisonRelease = TypedDict("PoisonRelease", {
    "reason": str,
})

Policy = TypedDict("Policy", {
    "id": Union["Id", None],
    "mode": Literal['off', 'suggest', 'automatic'],
    "device_seconds_per_day": Union[float, None],
    "device_seconds_per_job": Union[float, None],
    "jobs_per_hour": Union[int, None],
    "run": str,
    "configs_max": Union[int, None],
    "tokens": List[str],
    "images": List[str],
    "channel": Union[str, None],
    "require": Literal['none', 'agrees', 'bitwise', 'interpreted'],
    "promote": bool,
    "set_at": Union["Time", None],
    "set_by": Union[str, None],
    "set_by_id": Union["Id", None],
    "acts": bool,
    "used_today": Union[float, None],
    "open": Union[float, None],
}, total=False)

PolicyDecision = TypedDict("PolicyDecision", {
    "source": Union[str, None],
    "name": Union[str, None],
    "kernel": Union["Digest", None],
    "key": Union["Key", None],
    "job": "Id",
    "refused": str,
}, total=False)

PolicyDecisions = TypedDict("PolicyDecisions", {
    "items": List["PolicyDecision"],
})

PolicyList = TypedDict("PolicyList", {
    "items": List["Policy"],
    "next": "Next",
})

PolicyRun = TypedDict("PolicyRun", {
    "top": int,
}, total=False)

PolicySuggestion = TypedDict("PolicySuggestion", {
    "source": Union[Literal['capture', 'demand'], None],
    "name": Union[str, None],
    "kernel": Union["Digest", None],
    "key": Union["Key", None],
    "environment": Union["Environment", None],
    "tag": Union[str, None],
    "regime": Union["Regime", None],
    "image": Union[str, None],
    "configs": Union[int, None],
    "device_seconds": Union[float, None],
    "not_queued": Union[str, None],
})

PolicySuggestions = TypedDict("PolicySuggestions", {
    "items": List["PolicySuggestion"],
    "next": None,
    "device_seconds_left": Union[float, None],
})

Problem = TypedDict("Problem", {
    "type": str,
    "title": str,
    "status": int,
    "kind": Literal['invalid', 'missing', 'conflict', 'precondition', 'unauthenticated', 'forbidden', 'too_large', 'rate', 'contention', 'unavailable', 'deadline', 'damaged', 'internal'],
    "detail": str,
    "pointer": str,
    "request": str,
    "missing": List["Digest"],
    "environments": List["Environment"],
    "epoch": Union[int, None],
    "lease": str,
}, total=False)

Proposal = TypedDict("Proposal", {
    "id": Union["Id", None],
    "channel": Union[str, None],
    "release": Union["Digest", None],
    "environment": Union["Environment", None],
    "tag": Union[str, None],
    "regime": Union["Regime", None],
    "winners": Union[int, None],
    "added": Union[int, None],
    "removed": Union[int, None],
    "changed": Union[int, None],
    "images": Union[List[str], None],
    "etag": Union[str, None],
    "state": Union[Literal['open', 'promoted', 'rejected', 'replaced'], None],
    "waits_for": Union[str, None],
    "reason": Union[str, None],
    "made_at": Union["Time", None],
    "decided_at": Union["Time", None],
    "decided_by": Union["By", None],
    "decided_by_id": Union["ById", None],
    "changes": Dict[str, Any],
}, total=False)

ProposalList = TypedDict("ProposalList", {
    "items": List["Proposal"],
    "next": Union[str, None],
})

ProposalPromotion = TypedDict("ProposalPromotion", {
    "counter": Union[int, None],
    "expires": Union[str, None],
    "signatures": Union[List["Signature"], None],
}, total=False)

ProposalRejection = TypedDict("ProposalRejection", {
    "reason": str,
})

Ranges = List[List[int]]

Regime = Literal['cold', 'warm']

Release = Dict[str, Any]

ReleaseAnswer = TypedDict("ReleaseAnswer", {
    "release": "Digest",
    "bytes": str,
    "winners": int,
    "included": List["ReleaseItem"],
    "kept": List["ReleaseItem"],
    "skipped": List["ReleaseItem"],
    "replaces": Union[Dict[str, Any], None],
})

ReleaseFetch = TypedDict("ReleaseFetch", {
    "fetched_by": "By",
    "fetched_by_id": "ById",
    "kind": Literal['entry', 'choices', 'release', 'files'],
    "channel": Union[str, None],
    "rule": Union[str, None],
    "requests": int,
    "first_at": "Time",
    "last_at": "Time",
})

ReleaseFetchList = TypedDict("ReleaseFetchList", {
    "items": List["ReleaseFetch"],
    "next": "Next",
})

ReleaseItem = TypedDict("ReleaseItem", {
    "name": Union[str, None],
    "kernel": "Digest",
    "key": Union["Key", None],
    "job": Union["Id", None],
    "origin": Literal['tuned', 'pinned', 'imported'],
    "agreement": "AgreementClass",
    "reason": str,
}, total=False)

ReleaseList = TypedDict("ReleaseList", {
    "items": List["ListedRelease"],
    "next": "Next",
})

ReleaseRequest = TypedDict("ReleaseRequest", {
    "environment": "Environment",
    "tag": str,
    "regime": Literal['cold', 'warm'],
    "kernels": List["Digest"],
    "as_of": "Time",
    "pins": List[Dict[str, Any]],
    "replaces": Union[Dict[str, Any], None],
    "requires": Union[Dict[str, Any], None],
    "refuse_self_timed": bool,
    "require_agreement": Literal['none', 'agrees', 'bitwise', 'interpreted'],
}, total=False)

RenewAnswer = TypedDict("RenewAnswer", {
    "expires_in_ms": Union[int, None],
    "configs": "Ranges",
}, total=False)

RenewRequest = TypedDict("RenewRequest", {
    "epoch": int,
    "config": Union[int, None],
}, total=False)

Resources = TypedDict("Resources", {
    "config": int,
    "vgprs": Union[int, None],
    "agprs": Union[int, None],
    "spills": Union[int, None],
    "lds_bytes": Union[int, None],
    "occupancy": Union[int, None],
    "object": Union[str, None],
    "conditions": Union[Dict[str, Any], None],
}, total=False)

ResultsAnswer = TypedDict("ResultsAnswer", {
    "accepted": int,
    "late": int,
    "known": int,
    "state": Literal['held', 'done', 'open'],
})

ResultsRequest = TypedDict("ResultsRequest", {
    "epoch": int,
    "measurements": List["MeasurementRequest"],
    "done": bool,
    "opening_us": int,
}, total=False)

Role = str

Search = TypedDict("Search", {
    "strategy": Literal['random', 'descent', 'evolution'],
    "trials": int,
})

Share = TypedDict("Share", {
    "id": Union["Id", None],
    "owner": Union[str, None],
    "weight": float,
    "device_seconds_per_day": Union[float, None],
    "device_seconds": Union[float, None],
    "device_seconds_today": Union[float, None],
    "open_jobs": Union[int, None],
    "waiting_since": Union["Time", None],
}, total=False)

ShareList = TypedDict("ShareList", {
    "items": List["Share"],
    "next": "Next",
})

SignIn = TypedDict("SignIn", {
    "user": Union[str, None],
    "problem": Union[str, None],
})

Signature = TypedDict("Signature", {
    "key": "Digest",
    "signature": str,
})

SignatureRequest = TypedDict("SignatureRequest", {
    "environment": "Environment",
    "tag": str,
    "regime": Literal['cold', 'warm'],
    "counter": int,
    "signature": "Signature",
}, total=False)

SignedChoices = TypedDict("SignedChoices", {
    "digest": "Digest",
    "signatures": List["Signature"],
})

Space = TypedDict("Space", {
    "parameters": Union[Dict[str, List[Union[int, str, bool, None]]], None],
    "configs": Union[List["Config"], None],
    "roles": Union[Dict[str, Literal['constexpr', 'option', 'env', 'define']], None],
    "conditions": Union[List[str], None],
    "default": Union["Config", None],
}, total=False)

Stage = Literal['screen', 'halving', 'final']

Status = TypedDict("Status", {
    "status": str,
    "version": str,
    "warnings": List[str],
}, total=False)

Text = str

Time = str

Token = TypedDict("Token", {
    "id": "Id",
    "name": str,
    "role": "Role",
    "created_at": "Time",
    "revoked_at": Union["Time", None],
    "expires_at": Union["Time", None],
    "agent": Union[str, None],
    "uses_left": Union[int, None],
    "agent_name": Union[str, None],
    "environment": Union["Environment", None],
    "channels": Union[List[str], None],
    "certificate": Union[str, None],
    "issuer": Union[str, None],
    "made_by": Union["By", None],
    "made_by_id": Union["ById", None],
    "revoked_by": Union["By", None],
    "revoked_by_id": Union["ById", None],
})

TokenAnswer = TypedDict("TokenAnswer", {
    "token": str,
    "name": str,
    "role": "Role",
    "certificate": str,
}, total=False)

TokenList = TypedDict("TokenList", {
    "items": List["Token"],
    "next": "Next",
})

TokenRequest = TypedDict("TokenRequest", {
    "name": str,
    "role": "Role",
    "expires": Union[str, None],
    "uses": Union[int, None],
    "agent_name": Union[str, None],
    "environment": Union["Environment", None],
    "certificate": str,
    "channels": Union[List[str], None],
}, total=False)
