"""The server's transactions on leases, jobs, channels, tokens and agents, as test_pairs.py runs them: each is a generator that
yields the statements of server/**/*.sql in the order in which the server runs them, with their parameters, and gets their rows.
What the server decides between two statements is decided here in the same way, as far as a pair needs it.

`yield COMMIT` ends a transaction and begins the next one. A generator returns how much it adds to the sums in SUMS.
"""

import hashlib
import json

COMMIT = "commit; begin"
SIGNATURE = "A" * 86 + "=="
BY = {"author": "test", "author_id": 1}
# Sums over the database that only grow by what a transaction adds: a lost update shows in them.
SUMS = {"posts": "select sum(posts) from leases", "device_us": "select sum(device_us) from leases",
        "measured": "select count(*) from measurements where seq > 0", "losses": "select count(*) from losses",
        "moves": "select sum(counter) from channels", "signings": "select sum(signings) from channels",
        "uses": "select -coalesce(sum(uses_left), 0) from tokens", "charged_us": "select sum(day_us) from owners",
        "winners": "select count(*) from winners",
        "poisoned": "select count(*) from poison", "unpoisoned": "select count(*) from poison where released_at is not null"}
ALL = {}
# Those that the server runs again after a deadlock (ERROR_CONTENTION), up to a number of attempts.
RETRIED = {"grant", "begin", "begin_search", "split", "post", "post_done", "post_late", "submit", "submit_new", "drift", "finish", "enrol", "enrol_again", "retry",
           "cancel_many"}


def transaction(function):
    ALL[function.__name__] = function
    return function


def configs(text):
    """The configs of a multirange."""
    ranges = [part.strip("[)").split(",") for part in text.strip("{}").replace("),[", ");[").split(";") if part]
    return {config for first, end in ranges for config in range(int(first), int(end))}


def multirange(numbers):
    return "{" + ",".join(f"[{n},{n + 1})" for n in sorted(numbers)) + "}"


OUTCOMES = ("correct", "compile", "runtime", "correctness", "timeout", "constraints")


def changes(*each):
    """Parameters of lease_change_state for changes {lease, from_state, to_state, …}."""
    none = {"less": "{}", "more": "{}", "is_split": False, **dict.fromkeys(("posts", "fruitless_less", "device_us", "opening_us"), 0),
            **dict.fromkeys(OUTCOMES, 0)}
    rows = [{**none, **change} for change in each]
    return {name: [row[name] for row in rows] for name in (*none, "lease", "from_state", "to_state")}


def opened(rows):
    return changes(*({"lease": row["id"], "from_state": "held", "to_state": "open"} for row in rows))


def cancelled(rows):
    return changes(*({"lease": row["id"], "from_state": row["state"], "to_state": "cancelled"} for row in rows))


def candidates(w):
    """The queues that a grant tries (server/lease/lease_front.h), from their starts."""
    queues = w.queues
    return {"queue_classes": [q["class"] for q in queues], "queue_owners": [q["owner"] for q in queues],
            "queue_priorities": [q["priority"] for q in queues], "queue_jobs": [0] * len(queues), "queue_leases": [0] * len(queues)}


@transaction
def grant(w):
    yield "lease_take", {"agent": w.idle, "device": "cpu0", "nonce": "grant", "token": 1, "lease_ms": 60000, **candidates(w)}


@transaction
def begin(w):
    """The first lease of a job gets its warm-start configs from the others."""
    wish = {"agent": w.other, "device": "cpu0", "nonce": "begin"}
    yield "lease_take", {**wish, "token": 1, "lease_ms": 60000, **candidates(w)}
    held = yield "lease_held", wish
    if not held or held[0]["job"] != w.queued:
        return
    yield "job_set_likely", {"job": w.queued, "likely": [1, 20]}
    wanted = {1, 20} - configs(held[0]["configs"])
    others = yield "lease_gather", {"job": w.queued, "wanted": multirange(wanted)}
    taken = [{"lease": row["id"], "from_state": "open", "to_state": "done" if row["is_all"] == "t" else "open", "less": row["taken"]}
             for row in others]
    gained = set().union(*(configs(row["taken"]) for row in others)) if others else set()
    if gained:
        yield "lease_change_state", changes(*taken, {"lease": held[0]["id"], "from_state": "held", "to_state": "held",
                                                     "more": multirange(gained)})
    yield "job_change_state", job_change(w.queued, "queued", "running")


@transaction
def begin_search(w):
    """The first lease of a search cuts its first batch again, with other warm-start configs. Here the batch stays the same."""
    wish = {"agent": w.other, "device": "cpu0", "nonce": "begin_search"}
    yield "lease_take", {**wish, "token": 1, "lease_ms": 60000, **candidates(w)}
    held = yield "lease_held", wish
    if not held or held[0]["job"] != w.queued:
        return
    if (yield "job_search_warm", {"job": w.queued, "likely": [1, 20]}):
        own = held[0]["id"]
        rows = yield "lease_batch", {"job": w.queued}
        states = {row["id"]: "held" if row["id"] == own else "open" for row in rows if row["may_change"] == "t" or row["id"] == own}
        yield "lease_change_state", changes(*({"lease": lease, "from_state": state, "to_state": state} for lease, state in states.items()))
    yield "job_change_state", job_change(w.queued, "queued", "running")


def job_change(job, before, after, stage=None, round=0, to_stage=None, to_round=None, reason=None):
    return {"jobs": job if isinstance(job, list) else [job], "from_state": before, "to_state": after, "from_stage": stage, "from_round": round, "to_stage": to_stage,
            "to_round": to_round, "reason": reason, "detail": "{}", **BY}


@transaction
def renew(w):
    yield "leases_renew", {"task": [w.held], "epoch": [1], "config": [3], "lease_ms": 60000}


def results(w, lease, epoch, wanted, first_seq, rows):
    """A post: what is still leased counts, the rest is late."""
    row = rows[0]
    is_current = row["state"] == "held" and int(row["epoch"]) == epoch
    remaining = configs(row["remaining"]) if is_current else set()
    seqs = list(range(first_seq, first_seq + len(wanted)))
    known = (yield "results_known", {"job": row["job_id"], "seq": seqs, "lease": lease, "epoch": epoch}) if int(row["posts"]) else []
    fresh = [(seq, config) for seq, config in zip(seqs, wanted) if str(seq) not in {k["seq"] for k in known}]
    if not fresh:
        return {}
    counted = {config for _, config in fresh} & remaining
    n = len(fresh)
    yield "results_insert", {
        "job": row["job_id"], "lease": lease, "epoch": epoch, "stage": row["stage"], "agent": row["agent"], "device": row["device"],
        "refused": not is_current,
        "body_digest": [hashlib.sha256(bytes([seq % 256])).digest() for seq, _ in fresh], "ratio": [0.5] * n,
        "late": [config not in counted for _, config in fresh], "seq": [seq for seq, _ in fresh],
        "config": [config for _, config in fresh], "round": [row["round"]] * n, "process": [row["process"]] * n,
        "outcome": ["correct"] * n, "samples_us": ["{1}"] * n, "baseline_us": ["{2}"] * n}
    if not is_current:
        yield "lease_change_state", changes({"lease": lease, "from_state": row["state"], "to_state": row["state"], "posts": 1})
        yield "results_late", {"job": row["job_id"], "lease": lease, "epoch": epoch, "current_epoch": row["epoch"], "measurements": n}
        return {"measured": n, "posts": 1}
    yield "lease_change_state", changes({
        "lease": lease, "from_state": "held", "to_state": "held" if remaining - counted else "done", "less": multirange(counted),
        "posts": 1, "device_us": 10, "fruitless_less": 1, "correct": len(counted)})
    yield "results_best", {"job": row["job_id"], "ratio": 0.25}
    return {"measured": n, "posts": 1, "device_us": 10}


@transaction
def post(w):
    rows = yield "results_lock", {"lease": w.held}
    return (yield from results(w, w.held, 1, [2, 3], 10, rows))


@transaction
def post_done(w):
    rows = yield "results_lock", {"lease": w.held}
    return (yield from results(w, w.held, 1, w.held_configs, 20, rows))


@transaction
def post_late(w):
    rows = yield "results_lock", {"lease": w.expired}
    return (yield from results(w, w.expired, 0, [w.expired_configs[0]], 1, rows))


@transaction
def hand_back(w):
    row, = yield "lease_lock", {"lease": w.held}
    if row["state"] == "held" and row["epoch"] == "1":
        yield "lease_note_handed_back", {"lease": w.held, "reason": "no compiler"}
        yield "lease_change_state", opened([row])


def lose(rows):
    if not rows:
        return {}
    yield "lease_change_state", opened(rows)
    members = ("id", "job_id", "epoch", "agent", "device", "config")
    yield "leases_note_losses", {m: [row[m] or None for row in rows] for m in members}
    return {"losses": sum(row["config"] != "" for row in rows)}


@transaction
def shorten(w):
    """After the database's clock was stepped back."""
    yield "leases_shorten", {"lease_ms": 30000}


@transaction
def expire(w):
    return (yield from lose((yield "leases_expire", {"limit": 500})))


@transaction
def expire_due(w):
    return (yield from lose((yield "leases_expire_due", {"since_ms": 0, "limit": 500})))


@transaction
def defer(w):
    """Of leases that were renewed."""
    rows = yield "leases_defer", {"since_ms": 0, "limit": 500}
    return {"deferred": len(rows)}


@transaction
def give_up(w):
    """Of the open lease."""
    row, = yield "lease_lock", {"lease": w.open}
    given = configs(row["remaining"])
    if row["state"] == "open" and given:
        yield "lease_give_up", {"lease": w.open, "given": row["remaining"], "detail": "lost", "config": None, "poison": None,
                                "was_run": False}
        yield "lease_change_state", changes({"lease": w.open, "from_state": "open", "to_state": "done", "less": row["remaining"]})


@transaction
def hand_back_failed(w):
    """The holder's device failed while it measured a config."""
    row, = yield "lease_lock", {"lease": w.held}
    if row["state"] != "held" or row["epoch"] != "1":
        return {}
    noted = yield "lease_note_failed_device", {"lease": w.held}
    yield "lease_change_state", opened([row])
    return {"losses": len(noted)}


@transaction
def judge_poison(w):
    """Judges the losses that are not judged yet as if all were of the config of the ledger's entry."""
    yield "poison_lock", {}
    rows = yield "poison_unjudged", {"moment_ms": 1, "limit": 200}
    if not rows:
        return {}
    yield "poison_judged", {"id": [row["id"] for row in rows], "of_config": [w.poisoned] * len(rows),
                            "of_kernel": [None] * len(rows), "of_object": [None] * len(rows)}
    losses = yield "poison_losses", {"subject": w.poisoned, "moment_ms": 1, "limit": 256}
    if not losses:
        return {}
    added = yield "poison_add", {
        "scope": "config", "subject": w.poisoned, "device_class": rows[0]["device_class"], "environment": rows[0]["environment_id"],
        "kernel": rows[0]["kernel"], "build": None, "object": None, "config_values": "{}", "reason": "lost", "evidence": "[]"}
    return {"poisoned": len(added)}


@transaction
def release_poison(w):
    yield "poison_lock", {}
    rows = yield "poison_release", {"id": w.poison, "reason": "mended", **BY}
    return {"unpoisoned": len(rows)}


@transaction
def apply_poison(w):
    """Of the running job, what is in its held and in its open lease."""
    poisoned = {w.held_configs[0], w.open_configs[-1]}
    leases = yield "poison_leases", {"job": w.running, "configs": multirange(poisoned), "stage": None, "round": 0}
    for lease in leases:
        for config in sorted(poisoned):
            row, = yield "lease_lock", {"lease": lease["id"]}
            remaining = configs(row["remaining"])
            if config not in remaining:
                continue
            yield "lease_give_up", {"lease": lease["id"], "given": multirange({config}), "detail": "skipped", "config": config, "was_run": False,
                                    "poison": w.poison}
            yield "lease_change_state", changes({
                "lease": lease["id"], "from_state": row["state"], "to_state": row["state"] if remaining - {config} else "done",
                "less": multirange({config}), "is_split": row["state"] == "held"})
    yield COMMIT
    yield "poison_settle", {"ids": [w.poison]}


@transaction
def move_baseline(w):
    """Of the queued job, which `begin` starts and of which nothing is measured."""
    rows = yield "job_leases_lock", {"job": w.queued}
    changed = yield "job_change_baseline", {"job": w.queued, "failed": 0, "baseline": 1, "baseline_from": "first", "default_config": None,
                                            "detail": "{}"}
    if changed and rows:
        yield "lease_change_state", changes(*({"lease": row["id"], "from_state": row["state"], "to_state": "open", "fruitless_less": 1}
                                              for row in rows))


@transaction
def set_apart(w):
    row, = yield "lease_lock", {"lease": w.open}
    one = f"{{[{w.open_configs[0]},{w.open_configs[0] + 1})}}"
    if row["state"] == "open" and w.open_configs[0] in configs(row["remaining"]):
        yield "lease_change_state", changes({"lease": w.open, "from_state": "open", "to_state": "open", "less": one})
        yield "lease_set_apart", {"lease": w.open, "config": one, "agents": [w.holder]}


@transaction
def avoid(w):
    row, = yield "lease_lock", {"lease": w.open}
    if row["state"] == "open":
        yield "lease_avoid", {"lease": w.open, "agents": [w.holder]}


@transaction
def split(w):
    rows = yield "leases_split_choose", {"agent": w.idle, "device": "cpu0", "configs_min": 2, "split_configs_min": 2, "age_ms": 1,
                                         "left_us": 1}
    if rows:
        remaining = sorted(configs(rows[0]["remaining"]))
        tail = multirange(remaining[len(remaining) // 2:])
        yield "lease_change_state", changes({"lease": rows[0]["id"], "from_state": "held", "to_state": "held", "less": tail,
                                             "is_split": True})
        yield "leases_split", {"lease": rows[0]["id"], "tail": tail, "is_large": False}


def end(w, job):
    changed = yield "job_change_state", job_change(job, "queued", "cancelled")
    if not changed:
        yield "job_change_state", job_change(job, "running", "cancelled")
    yield COMMIT
    rows = yield "leases_cancel_ended", {"jobs": [job]}
    if rows:
        yield "lease_change_state", cancelled(rows)


@transaction
def cancel(w):
    yield from end(w, w.running)


@transaction
def cancel_queued(w):
    yield from end(w, w.queued)


@transaction
def cancel_deciding(w):
    yield from end(w, w.deciding)


@transaction
def cancel_many(w):
    jobs = sorted((w.running, w.queued, w.deciding), key=int)
    for state in ("queued", "running"):
        yield "job_change_state", job_change(jobs, state, "cancelled")
        yield COMMIT
    rows = yield "leases_cancel_ended", {"jobs": jobs}
    if rows:
        yield "lease_change_state", cancelled(rows)


@transaction
def sweep(w):
    rows = yield "leases_cancel_all_ended", {}
    if rows:
        yield "lease_change_state", cancelled(rows)


@transaction
def over_budget(w):
    rows = yield "leases_cancel_over_budget", {"job": w.running}
    if rows:
        yield "lease_change_state", cancelled(rows)
        yield "lease_note_cancelled", {"job": w.running, "leases": len(rows)}


@transaction
def next_stage(w):
    changed = yield "job_change_state", job_change(w.deciding, "running", "running", "final", w.round, "final", w.round + 1)
    if changed:
        yield "leases_insert", {"stage": "final", "round": w.round + 1, "job": [w.deciding] * 2, "process": [0, 1],
                                "configs": ["{[0,2)}"] * 2, "is_large": [False] * 2, "is_reserved": [True, False]}


@transaction
def finish(w):
    """Decides the job, and flags the winner of an earlier one."""
    changed = yield "job_change_state", job_change(w.deciding, "running", "done", "final", w.round)
    if not changed:
        return {}
    yield "job_store_winner", {"job": w.deciding, "config": 0, "config_values": '{"A":1}', "verdict": "{}", "agreement": "agrees",
                               "interpreted": False, "others": "[]"}
    yield "job_store_disagreeing", {"job": w.deciding}
    yield "flags_store", {"job": w.deciding, "config_values": [w.winner], "ratio": [1.5], "lower": [1.4], "upper": [1.6]}
    return {"winners": 1}


@transaction
def disagree(w):
    changed = yield "job_change_state", job_change(w.deciding, "running", "done", "final", w.round, reason="wrong")
    if changed:
        yield "job_store_disagreeing", {"job": w.deciding}


@transaction
def drift(w):
    where = {"agent": w.holder, "device": "cpu0"}
    yield "drift_suspect", {**where, "reason": "drifts", "since_us": 0, **BY}
    locked = yield "drift_lock", {**where, "since_us": 0}
    taken = yield "drift_quarantine", {**where, "since_us": 0, "locked": [row["id"] for row in locked]}
    missing = {row["lease_id"]: row for row in taken if int(row["missing"]) and row["fits"] == "t"}
    each = []
    for row in locked:
        misses, is_here = missing.get(row["id"]), row["is_held_here"] == "t"
        if row["state"] != "cancelled" and (misses or is_here):
            each.append({"lease": row["id"], "from_state": row["state"],
                         "to_state": "open" if row["state"] == "done" or is_here else row["state"], "posts": 1,
                         **({"more": misses["configs"], "correct": -int(misses["missing"])} if misses else {})})
    if each:
        yield "lease_change_state", changes(*each)
    jobs = {row["job_id"]: row for row in (*locked, *taken)}
    of_job = {job: [row for row in taken if row["job_id"] == job] for job in jobs}
    yield "drift_events", {**where, "reason": "drifts", "job": list(jobs),
                           "samples": [sum(int(row["samples"]) for row in of_job[job]) for job in jobs],
                           "missing": [sum(int(row["missing"]) for row in of_job[job]) for job in jobs]}
    yield "drift_winners", {"reason": "drifts", "jobs": [job for job in jobs if any(row["is_final"] == "t" for row in of_job[job])]}
    return {"posts": len(each)}


def submission(w, run, priority, retry_of=0):
    yield "owners_add", {"author": BY["author"]}
    yield "spaces_store", {"digest": [hashlib.sha256(run.encode()).digest()], "space": ["{}"]}
    if retry_of:
        yield "jobs_step_aside", {"jobs": [retry_of]}
    rows = yield "jobs_insert", {**{name: [value] for name, value in w.identity.items()}, "run": [run], "priority": [priority],
                                 "retry_of": [retry_of or None], **BY}
    if rows[0]["created"] == "t":
        yield "leases_insert", {"stage": "screen", "round": 0, "job": [rows[0]["id"]], "process": [0], "configs": ["{[0,24)}"],
                                "is_large": [True], "is_reserved": [False]}
    yield COMMIT
    if rows[0]["created"] != "t":
        yield "jobs_raise_leases", {"jobs": [rows[0]["id"]]}


@transaction
def submit(w):
    yield from submission(w, "", 5)


@transaction
def submit_new(w):
    yield from submission(w, "new", 7)


@transaction
def charge(w):
    """What the leases of two owners used."""
    yield "owners_charge", {"owner": [0, w.owner_id], "us": [10, 10], "device_us": [10, 10], "leases": [1, 1]}
    return {"charged_us": 20}


@transaction
def charge_other_way(w):
    yield "owners_charge", {"owner": [w.owner_id, 0], "us": [10, 10], "device_us": [10, 10], "leases": [1, 1]}
    return {"charged_us": 20}


@transaction
def served(w):
    """Queues that got leases."""
    yield "lease_queues_store", {"class": [q["class"] for q in w.queues], "owner": [q["owner"] for q in w.queues],
                                 "priority": [q["priority"] for q in w.queues], "waited_ms": [0] * len(w.queues)}


@transaction
def served_other_way(w):
    queues = w.queues[::-1]
    yield "lease_queues_store", {"class": [q["class"] for q in queues], "owner": [q["owner"] for q in queues],
                                 "priority": [q["priority"] for q in queues], "waited_ms": [5] * len(queues)}


@transaction
def set_share(w):
    """Of a token that has submitted nothing yet."""
    yield "share_set", {"owner": "enrol", "weight": 3, "device_seconds_per_day": None}


@transaction
def set_share_of_submitter(w):
    yield "share_set", {"owner": w.owner_name, "weight": 2, "device_seconds_per_day": 10}


@transaction
def retry(w):
    """Of a job that another transaction may cancel; else it is known."""
    yield from submission(w, "", 0, w.running)


@transaction
def move(w):
    rows = yield "channel_move", {"name": "stable", "release": w.release, "from_counter": 1, "from_signings": 0, "expires": "null",
                                  "signatures": "[]", **BY}
    return {"moves": len(rows)}


@transaction
def move_back(w):
    rows = yield "channel_move", {"name": "stable", "release": w.release_before, "from_counter": 1, "from_signings": 0,
                                  "expires": "null", "signatures": json.dumps([{"key": "sha256:" + "ab" * 32, "signature": SIGNATURE}]), **BY}
    return {"moves": len(rows)}


@transaction
def move_first(w):
    rows = yield "channel_move", {"name": "canary", "release": w.release, "from_counter": 0, "from_signings": 0, "expires": "null",
                                  "signatures": "[]", **BY}
    return {"moves": len(rows)}


@transaction
def sign(w):
    rows = yield "channel_signature_add", {"id": w.channel, "counter": 1, "signings": 0, "key": b"\xab" * 32, "signature": SIGNATURE, **BY}
    return {"signings": len(rows)}


PLACE = {"channel": "stable", "tag": "default", "regime": "cold"}


@transaction
def propose(w):
    place = {**PLACE, "environment_digest": w.environment_digest}
    locked, = yield "policy_lock", {}
    if locked["is_locked"] != "t":
        return
    yield "proposals_replace", {**place, "reason": "newer", **BY}
    yield "proposals_add", {**place, "release": w.release, "environment": "{}", "winners": 1, "images": ["a"], "etag": "e", "changes": "{}"}
    yield COMMIT
    yield "policy_unlock", {}


@transaction
def reject(w):
    yield "proposals_reject", {"id": w.proposal, "reason": "no", **BY}


@transaction
def collect_proposals(w):
    yield "proposals_collect", {"days": 0}


def token(w, name, digest, role="reader", **more):
    yield "tokens_make", {"name": name, "role": role, "digest": digest, "expires_in_ms": None, "uses": None, "agent_name": None,
                          "environment": None, "agent": None, "replaces": None, "channels": None, "certificate": None, **BY, **more}


@transaction
def make_token(w):
    yield "tokens_end_expired", {"name": "over"}
    yield from token(w, "over", b"\1" * 32)


@transaction
def make_certificate(w):
    """For the certificate of a token that was revoked."""
    yield "tokens_end_expired", {"name": "cert"}
    yield "tokens_free_digest", {"digest": w.certificate_digest}
    yield from token(w, "cert", w.certificate_digest, "agent", certificate="CN:x")


@transaction
def identify(w):
    """A token of an identity provider whose identity was revoked before the token was issued, or is new."""
    yield "identity_put", {"name": "ci:a@b", "role": "submitter,publisher", "digest": w.certificate_digest, "issuer": "https://ci.test",
                           "issued_s": 4102444800, "until_s": 4102445100, "channels": "{nightly}"}


@transaction
def revoke(w):
    yield "tokens_revoke", {"name": "admin-1", "may_be_last_admin": False, **BY}


@transaction
def revoke_other(w):
    yield "tokens_revoke", {"name": "admin-2", "may_be_last_admin": False, **BY}


@transaction
def revoke_enrolment(w):
    yield "tokens_revoke", {"name": "enrol", "may_be_last_admin": False, **BY}


@transaction
def rotate(w):
    """An agent's token is replaced by another."""
    yield "agent_tokens_end", {"agent": w.owner, "replaces": w.own_token, **BY}
    yield from token(w, f"agent-{w.owner}-2", b"\2" * 32, "agent", agent=w.owner, replaces=w.own_token)


@transaction
def settle(w):
    """A token is used that replaces another."""
    yield "tokens_settle_used", {"ids": [w.next_token]}


def enrolment(agent, boot, owner):
    return (yield "agent_enrol", {"id": agent, "boot": boot, "name": "n", "version": "1", "machine": None, "token": owner, "trusted_keys": None})


@transaction
def enrol(w):
    """A new agent, with a token that may be used once more."""
    terms, = yield "enrolment_terms_lock", {"token": w.enrol_token}
    if terms["is_live"] != "t" or terms["uses_left"] == "0":
        return {}
    yield "enrolment_use", {"token": w.enrol_token}
    yield from enrolment("5" * 32, "b", w.enrol_token)
    yield "agent_tokens_end", {"agent": "5" * 32, "replaces": 0, **BY}
    yield from token(w, "agent-5", b"\3" * 32, "agent", agent="5" * 32)
    return {"uses": 1}


@transaction
def enrol_again(w):
    """After a restart of the agent that holds a lease."""
    yield "agent_before_lock", {"agent": w.holder, "live_ms": 1}
    before, = yield from enrolment(w.holder, "again", 0)
    if before["boot_before"] not in ("", "again"):
        return (yield from lose((yield "leases_reclaim", {"agent": w.holder})))


@transaction
def claim(w):
    yield "identities_claim", {"token": w.enrol_token, "agent": w.holder}


@transaction
def heartbeats(w):
    yield "agents_seen", {"ids": [w.idle, w.holder], "ages_ms": [0, 0]}
    yield COMMIT
    yield "devices_yielded", {"ids": [w.holder], "ages_ms": [0], "yielded": ['[{"device": "cpu0", "reason": "r", "for_ms": 1}]']}
    yield COMMIT
    yield "agent_end", {"agent": w.holder, "boot": "b"}


@transaction
def drain(w):
    yield "agent_drain", {"agent": w.holder, "reason": "by hand", **BY}


@transaction
def remove_agent(w):
    yield "agent_remove", {"agent": w.owner, "live_ms": 1, **BY}
    yield "agent_tokens_end", {"agent": w.owner, "replaces": 0, **BY}


@transaction
def refuse_copy(w):
    yield "agent_before_lock", {"agent": w.holder, "live_ms": 1}
    yield COMMIT
    yield "agent_note_refused", {"agent": w.holder, "machine": "m", "name": "copy"}
