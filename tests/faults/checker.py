"""Checks the history of a run (history.py) against what the server promises. Pure: it reads events and returns sentences.

    tests/faults/checker.py HISTORY        checks a stored history again; exit status 1 if a rule is broken

Kinds of events, who writes them, and their members:

    fault         run.py     name, detail
    post          clients    who, lease, epoch, status, accepted, measurements: [[seq, config, first sample], …]; the answer to
                             a post of results. Acknowledged: 200
    submit        clients    job; an acknowledged job
    cancel        clients    job; an acknowledged cancellation
    move          clients    server, if_match (a counter; 0: none yet), release, status (0: unknown outcome), counter
    channel_read  clients    reader, server, counter
    answer        clients    who, what, status, detail; an answer that no client may get
    live          sampler    leases: [[id, job, stage, round, process, ranges], …] open or held in one snapshot
    change        trigger    row, id, was, now: a row of leases, jobs or channels before and after, in the order of changes;
                             was null: made; now null: deleted. Of measurements only those that count at an epoch (now) that
                             their lease (id) did not have (was)
    died          run.py     who, status; a program that ended although no fault ended it
    exit          run.py     who, status (null: it did not end), early; after SIGTERM. early: the run sent it before the
                             program's main, which blocks it: then the signal may kill the program (status -15)
    spool         run.py     agent, pending, refused: records left, and reasons of records that the server refused for good
    measurement   run.py     lease, epoch, seq, config, job, stage, round, process, late, quarantined, sample: the final table
    job           run.py     id, state, configs, events, kinds, winner: the final table; kinds: of its events, in order
    entry         run.py     counter, release: the final history of the channel
    end           run.py     the run came to its end
"""

import collections
import math
import signal
import sys

import history

JOB_ENDED = ("done", "failed", "cancelled")
# Stated again, not read from the server's source: a change of the machine there must be made here too.
JOB_MOVES = {("queued", "running"), ("queued", "failed"), ("queued", "cancelled"), ("running", "running"), ("running", "done"),
             ("running", "failed"), ("running", "cancelled")}
LEASE_MOVES = {("open", "held"), ("open", "done"), ("open", "cancelled"), ("held", "open"), ("held", "done"),
               ("held", "cancelled"), ("done", "open")}
STAGES = ("screen", "halving", "final")
SHOWN = 5  # broken cases of a rule that are printed


def group(events):
    kinds = collections.defaultdict(list)
    for event in events:
        kinds[event["kind"]].append(event)
    return kinds


def is_same_sample(a, b):
    """Samples are stored in single precision."""
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=1e-6)


def acknowledged_results_are_stored(kinds):
    stored = {(m["lease"], m["epoch"], m["seq"]): m for m in kinds["measurement"]}
    for post in kinds["post"]:
        for seq, config, sample in post["measurements"] if post["status"] == 200 else ():
            row = stored.get((post["lease"], post["epoch"], seq))
            where = f"lease {post['lease']} epoch {post['epoch']} seq {seq}"
            if row is None:
                yield f"{where}, acknowledged to {post['who']}, is lost"
            elif row["config"] != config or not is_same_sample(row["sample"], sample):
                yield f"{where}, acknowledged to {post['who']} as config {config} with {sample} us, is stored as {row}"


def nothing_is_accepted_twice(kinds):
    counted, by_epoch = collections.Counter(), collections.Counter()
    seqs = set()
    for m in kinds["measurement"]:
        if (m["lease"], m["epoch"], m["seq"]) in seqs:
            yield f"lease {m['lease']} epoch {m['epoch']} seq {m['seq']} is stored twice"
        seqs.add((m["lease"], m["epoch"], m["seq"]))
        by_epoch[m["lease"], m["epoch"]] += m["seq"] > 0
        if not m["late"]:
            counted[m["job"], m["stage"], m["round"], m["process"], m["config"]] += 1
    for place, n in counted.items():
        if n > 1:
            yield "config {4} of job {0} counts {n} times in {1} {2}, process {3}".format(*place, n=n)
    accepted = collections.Counter()
    for post in kinds["post"]:
        if post["status"] == 200:
            accepted[post["lease"], post["epoch"]] += post["accepted"]
    for (lease, epoch), n in accepted.items():
        if n > by_epoch[lease, epoch]:
            yield f"lease {lease} epoch {epoch}: {n} results were accepted, {by_epoch[lease, epoch]} are stored"


def no_config_is_in_two_live_leases(kinds):
    for snapshot in kinds["live"]:
        owners = {}
        for lease, job, stage, round_, process, ranges in snapshot["leases"]:
            for config in (c for first, end in ranges for c in range(first, end)):
                place = (job, stage, round_, process, config)
                if place in owners:
                    yield f"at {snapshot['t']} s config {config} of job {job} ({stage} {round_}, process {process}) is in the " \
                          f"live leases {owners[place]} and {lease}"
                owners[place] = lease


def changes_of(kinds, row):
    return (c for c in kinds["change"] if c["row"] == row)


def jobs_move_along_their_machine(kinds):
    last = {}
    for c in changes_of(kinds, "jobs"):
        was, now, name = c["was"], c["now"], f"job {c['id']}"
        if now is None:
            yield f"{name} was deleted"
        elif was is None:
            if now["state"] != "queued":
                yield f"{name} began as {now['state']}"
        else:
            if last.get(c["id"]) != was:
                yield f"{name} changed from {was}, but was {last.get(c['id'])}"
            if was["state"] != now["state"] and (was["state"], now["state"]) not in JOB_MOVES:
                yield f"{name} went from {was['state']} to {now['state']}"
            order = [(STAGES.index(j["stage"]), j["round"]) for j in (was, now)]
            if order[1] < order[0] or (was["state"] in JOB_ENDED and order[0] != order[1]):
                yield f"{name} went from {was['stage']} {was['round']} to {now['stage']} {now['round']}, {was['state']}"
            if now["events"] < was["events"]:
                yield f"{name} went from {was['events']} to {now['events']} events"
        last[c["id"]] = now


def leases_move_along_their_machine(kinds):
    last = {}
    for c in changes_of(kinds, "leases"):
        was, now, name = c["was"], c["now"], f"lease {c['id']}"
        if now is None:
            yield f"{name} was deleted"
        elif was is None:
            if now["state"] != "open" or now["epoch"] != 0:
                yield f"{name} began as {now['state']} at epoch {now['epoch']}"
        else:
            if last.get(c["id"]) != was:
                yield f"{name} changed from {was}, but was {last.get(c['id'])}"
            if was["state"] != now["state"] and (was["state"], now["state"]) not in LEASE_MOVES:
                yield f"{name} went from {was['state']} to {now['state']}"
            is_grant = was["state"] == "open" and now["state"] == "held"
            if now["epoch"] != was["epoch"] + is_grant:
                yield f"{name} went from epoch {was['epoch']} {was['state']} to {now['epoch']} {now['state']}"
        last[c["id"]] = now


def nothing_counts_at_another_epoch(kinds):
    for c in changes_of(kinds, "measurements"):
        yield f"seq {c['now']['seq']} of lease {c['id']} counts at epoch {c['now']['epoch']}, and the epoch was {c['was']['epoch']}"


def channels_move_by_if_match_only(kinds):
    entries = {e["counter"]: e["release"] for e in kinds["entry"]}
    if sorted(entries) != list(range(1, len(kinds["entry"]) + 1)):
        yield f"the counters of the entries are {sorted(e['counter'] for e in kinds['entry'])}"
    wished, owner = collections.defaultdict(set), {}
    for move in kinds["move"]:
        if move["status"] == 0 or (move["status"] == 200 and move["counter"] == move["if_match"] + 1):
            wished[move["if_match"] + 1].add(move["release"])
        if move["status"] != 200:
            continue
        if entries.get(move["counter"]) != move["release"]:
            yield f"the move to {move['release']} was acknowledged as counter {move['counter']}, which is " \
                  f"{entries.get(move['counter'])}"
        if move["counter"] < move["if_match"]:
            yield f"If-Match named counter {move['if_match']}, and the move was acknowledged as {move['counter']}"
        # Another counter than the next one: the channel had this release already, and nothing was left to do.
        if owner.setdefault(move["counter"], move["release"]) != move["release"]:
            yield f"counter {move['counter']} was acknowledged for two releases"
    for counter, release in entries.items():
        if release not in wished[counter]:
            yield f"entry {counter} is {release}, which no move with If-Match of counter {counter - 1} requested"


def versions_only_grow(kinds):
    read = {}
    for r in kinds["channel_read"]:
        at = (r["reader"], r["server"])
        if r["counter"] < read.get(at, 0):
            yield f"{r['reader']} read counter {r['counter']} at {r['server']}, after {read[at]}"
        read[at] = max(r["counter"], read.get(at, 0))
    counters = {}
    for c in changes_of(kinds, "channels"):
        if c["now"] is None or c["now"]["counter"] != counters.get(c["id"], 0) + 1:
            yield f"channel {c['id']} went from counter {counters.get(c['id'], 0)} to {c['now']}"
        counters[c["id"]] = c["now"]["counter"] if c["now"] else 0


def acknowledged_jobs_are_stored_and_end(kinds):
    jobs = {j["id"]: j for j in kinds["job"]}
    for submit in kinds["submit"]:
        if submit["job"] not in jobs:
            yield f"job {submit['job']}, acknowledged, is lost"
    for cancel in kinds["cancel"]:
        state = jobs.get(cancel["job"], {}).get("state")
        if state != "cancelled":
            yield f"job {cancel['job']}, whose cancellation was acknowledged, is {state}"
    for job in jobs.values():
        if job["state"] not in JOB_ENDED:
            yield f"job {job['id']} is {job['state']} after the last fault"


def jobs_are_complete(kinds):
    screened, processes = collections.Counter(), collections.defaultdict(set)
    for m in kinds["measurement"]:
        if not m["late"]:
            screened[m["job"]] += m["stage"] == "screen"
            if m["stage"] == "final":
                processes[m["job"]].add(m["process"])
    for job in kinds["job"]:
        name, events = f"job {job['id']}", job["kinds"]
        if job["state"] == "done" and screened[job["id"]] != job["configs"]:
            yield f"{name} is done, and {screened[job['id']]} of its {job['configs']} configs were screened"
        if job["state"] == "done" and not job["winner"]:
            yield f"{name} is done without a winner"
        if job["state"] == "done" and len(processes[job["id"]]) < 3:
            yield f"the final of {name} was measured by {len(processes[job['id']])} processes"
        if len(events) != job["events"]:
            yield f"{name} counts {job['events']} events and has {len(events)}"
        for once in ("queued", *JOB_ENDED):
            if events.count(once) > 1:
                yield f"{name} has {events.count(once)} events \"{once}\""
        if job["state"] in JOB_ENDED and events.count(job["state"]) != 1:
            yield f"{name} is {job['state']} without an event that says so"
        # Agents that are killed again and again while they measure the baseline look like a baseline that kills them.
        # The ledger of poison then ends other jobs, until the submitter releases it.
        if job["state"] == "failed" and "poisoned" not in events and "is poisoned on this hardware" not in job["reason"]:
            yield f"{name} failed, and no fault is a reason for that"


def spools_drain(kinds):
    for spool in kinds["spool"]:
        if spool["pending"]:
            yield f"{spool['agent']} has {spool['pending']} records left in its spool"
        for reason in spool["refused"]:
            yield f"{spool['agent']} had a record refused for good: {reason}"


def programs_end_when_told_and_only_then(kinds):
    for died in kinds["died"]:
        yield f"at {died['t']} s {died['who']} ended by itself with {died['status']}"
    for exit_ in kinds["exit"]:
        was_before_main = exit_["early"] and exit_["status"] == -signal.SIGTERM
        if exit_["status"] != 0 and not was_before_main:
            yield f"at {exit_['t']} s {exit_['who']} answered SIGTERM with {exit_['status']}"


def no_answer_is_a_defect(kinds):
    for answer in kinds["answer"]:
        yield f"{answer['who']} was answered {answer['status']} to {answer['what']}: {answer['detail']}"


def something_happened(kinds):
    """A run in which nothing was measured or acknowledged checks nothing."""
    for kind in ("end", "submit", "post", "move", "channel_read", "live", "change", "measurement", "job", "entry", "spool", "exit"):
        if not kinds[kind]:
            yield f"the history has no event \"{kind}\""


RULES = [acknowledged_results_are_stored, nothing_is_accepted_twice, no_config_is_in_two_live_leases,
         jobs_move_along_their_machine, leases_move_along_their_machine, nothing_counts_at_another_epoch,
         channels_move_by_if_match_only, versions_only_grow, acknowledged_jobs_are_stored_and_end, jobs_are_complete,
         spools_drain, programs_end_when_told_and_only_then, no_answer_is_a_defect, something_happened]


def check(events):
    """Rule -> the sentences about its broken cases."""
    kinds = group(events)
    return {rule.__name__: list(rule(kinds)) for rule in RULES}


def report(broken):
    """Prints the rules, and the first broken cases of each. True: none is broken."""
    for name, cases in broken.items():
        print(f"  {name.replace('_', ' ')}: {f'BROKEN, {len(cases)} times' if cases else 'holds'}")
        for case in cases[:SHOWN]:
            print(f"      {case}")
    return not any(broken.values())


if __name__ == "__main__":
    sys.exit(0 if report(check(history.read(sys.argv[1]))) else 1)
