"""The table of faults. A fault does its harm at once and returns (detail, seconds, undo): `undo` is called after `seconds`, by
which the harm has ended; undo None: nothing is to undo. It returns None where it does not apply at the moment.

None of them waits: all run in the one thread of run.py, which must keep its times."""

import collections
import signal
import subprocess

from world import AGENTS, LEASE_MS, POSTGRES_PORT, SERVERS, harness, send

TABLE = "faults"  # of nftables, in the run's own network namespace
Fault = collections.namedtuple("Fault", "name weight do needs")


class Faults:
    def __init__(self, world, random):
        self.world, self.random = world, random
        self.skipped = self._missing()

    def _missing(self):
        """Need -> why it is not there."""
        missing = {}
        if not self.world.isolated:
            missing["disk"] = missing["network"] = "not root, or namespaces cannot be made"
        elif subprocess.run(["nft", f"add table ip {TABLE}; add chain ip {TABLE} lost {{ type filter hook input priority 0; }}"],
                            capture_output=True).returncode:
            missing["network"] = "nftables is not there (Debian: nftables)"
        if not self.world.postgres.faketime:
            missing["clock"] = "libfaketime is not there (Debian: faketime)"
        return missing

    def usable(self):
        return [fault for fault in FAULTS if fault.needs not in self.skipped]

    def one_up(self, programs):
        up = [p for p in programs if p.is_wanted and p.is_up() and not p.is_stopped]
        return self.random.choice(up) if up else None

    # Servers and agents

    def kill(self, programs):
        if program := self.one_up(programs):
            program.kill()
            return f"{program.name}", self.random.uniform(0, 4), program.start

    def stop(self, programs):
        if program := self.one_up(programs):
            program.stop()
            seconds = self.random.choice([0.5, 2, 2.5 * LEASE_MS / 1000])
            return f"{program.name} for {seconds} s", seconds, program.go_on

    def terminate(self, programs):
        """SIGTERM, and a new start. How it ended is recorded when it is to be started again."""
        if program := self.one_up(programs):
            process, is_early = program.process, program.terminate()

            def start(patience=10 * harness.PATIENCE):
                if process.poll() is None and patience:
                    return 1, lambda: start(patience - 1)  # later
                status = process.poll()
                if status is None:
                    program.kill()
                if not (status == -signal.SIGABRT and program in self.world.servers and program.has_aborted()):
                    self.world.history.add("exit", who=program.name, status=status, early=is_early)
                program.start()

            return f"{program.name}", 0.5, start

    def kill_server(self):
        return self.kill(self.world.servers)

    def stop_server(self):
        return self.stop(self.world.servers)

    def terminate_server(self):
        return self.terminate(self.world.servers)

    def kill_agent(self):
        return self.kill(self.world.agents)

    def stop_agent(self):
        return self.stop(self.world.agents)

    def terminate_agent(self):
        return self.terminate(self.world.agents)

    def failpoints(self):
        """A server fails around statements and commits for a few seconds."""
        server = self.random.choice(self.world.servers)
        rules = [f"seed {self.random.randrange(1 << 32)}"]
        for place in self.random.sample(["before_statement", "after_statement", "before_commit", "after_commit"], 2):
            action, per_million = self.random.choice([("sleep", 100000), ("sleep", 20000), ("drop", 30000), ("drop", 100000),
                                                      ("abort", 5000), ("abort", 20000)])
            rules.append(f"{place} * {action} {per_million} {self.random.choice([20, 300, 2000])}")
        server.failpoints_set("\n".join(rules) + "\n")
        seconds = self.random.uniform(2, 8)
        return f"{server.name} for {seconds:.1f} s: {'; '.join(rules[1:])}", seconds, lambda: server.failpoints_set("")

    # PostgreSQL

    def postgres_is_up(self):
        return self.world.postgres.is_wanted and self.world.postgres.process.poll() is None

    def postgres_end(self, signal_):
        """Ends it; it is started again once it has ended."""
        postgres = self.world.postgres
        if not self.postgres_is_up():
            return None
        for pid in postgres.processes():
            send(pid, signal.SIGCONT)
        postgres.is_wanted = False
        postgres.process.send_signal(signal_)

        def start():
            postgres.is_wanted = True

        seconds = self.random.uniform(0, 3)
        return f"back after {seconds:.1f} s", seconds, start

    def postgres_restart(self):
        return self.postgres_end(signal.SIGINT)

    def postgres_quit(self):
        return self.postgres_end(signal.SIGQUIT)

    def postgres_kill(self):
        return self.postgres_end(signal.SIGKILL)

    def backend_kill(self):
        """After it PostgreSQL recovers as from a crash."""
        if backends := self.world.postgres.backends():
            send(self.random.choice(backends), signal.SIGKILL)
            return "one of them", 0, None

    def stopped(self, pids, what):
        for pid in pids:
            send(pid, signal.SIGSTOP)
        seconds = self.random.choice([0.5, 3, 8])

        def go_on():
            for pid in set(pids) & set(self.world.postgres.processes()):  # a number may be another process's by now
                send(pid, signal.SIGCONT)

        return f"{what} for {seconds} s", seconds, go_on

    def backend_stop(self):
        if backends := self.world.postgres.backends():
            return self.stopped([self.random.choice(backends)], "one of them")

    def postgres_stop(self):
        if self.postgres_is_up():
            return self.stopped(self.world.postgres.processes(), "all its processes")

    def backends_terminate(self):
        backends = self.world.postgres.backends()
        for pid in backends:
            send(pid, signal.SIGTERM)
        return (f"{len(backends)}", 0, None) if backends else None

    def connections_full(self):
        """No connection is left, also not to those who lose theirs."""
        postgres = self.world.postgres
        if not self.postgres_is_up() or postgres.hogs:
            return None
        lost = postgres.backends()
        postgres.hog()
        for pid in lost:
            send(pid, signal.SIGTERM)
        taken = postgres.hog()
        seconds = self.random.uniform(1, 5)
        return f"{taken} taken for {seconds:.1f} s", seconds, postgres.unhog

    def disk_full(self):
        postgres = self.world.postgres
        if postgres.filler and postgres.filler.exists():
            return None
        postgres.fill()
        seconds = self.random.uniform(1, 6)
        return f"for {seconds:.1f} s", seconds, postgres.unfill

    def clock_step(self):
        # Forward by no more: the leases of agents that die before the step back would last as much longer.
        offset = self.random.choice(["-3600s", "-30s", "-3s", "+3s", "+10s", "+30s"])
        self.world.postgres.clock_set(offset)
        seconds = self.random.uniform(2, 8)
        return f"{offset} for {seconds:.1f} s", seconds, lambda: self.world.postgres.clock_set("+0")

    # Network

    def proxy(self, fault, chance):
        proxies = [p for p in self.world.proxies if not p.faults[fault]]
        if not proxies:
            return None
        proxy = self.random.choice(proxies)
        proxy.faults[fault] = chance
        seconds = self.random.uniform(2, 10)
        return f"{proxy.name} for {seconds:.1f} s", seconds, lambda: proxy.faults.update({fault: 0.0})

    def requests_cut(self):
        return self.proxy("cut", 0.3)

    def requests_delayed(self):
        return self.proxy("delay", 0.3)

    def requests_repeated(self):
        return self.proxy("duplicate", 0.5)

    def partition(self, match, what):
        """Packets that match are dropped, in one direction: nobody gets an error."""
        done = subprocess.run(["nft", "--echo", "--handle", "add", "rule", "ip", TABLE, "lost", *match.split(), "drop"],
                              capture_output=True, text=True, check=True)
        handle = done.stdout.split("handle")[-1].split()[0]
        seconds = self.random.uniform(1, 9)
        return f"{what} for {seconds:.1f} s", seconds, lambda: subprocess.run(
            ["nft", "delete", "rule", "ip", TABLE, "lost", "handle", handle], check=True)

    def partition_database(self):
        index = self.random.randrange(SERVERS)
        address = self.world.postgres.address(index)
        match, what = self.random.choice([(f"ip daddr {address} tcp dport {POSTGRES_PORT}", "requests"),
                                          (f"ip saddr {address} tcp sport {POSTGRES_PORT}", "answers")])
        return self.partition(match, f"server{index}'s {what}")

    def partition_agent(self):
        index = self.random.randrange(AGENTS)
        address, port = self.world.proxies[index].listen
        match, what = self.random.choice([(f"ip daddr {address} tcp dport {port}", "requests"),
                                          (f"ip saddr {address} tcp sport {port}", "answers")])
        return self.partition(match, f"agent{index}'s {what}")


FAULTS = [
    Fault("server_kill", 4, Faults.kill_server, None),
    Fault("server_stop", 2, Faults.stop_server, None),
    Fault("server_terminate", 2, Faults.terminate_server, None),
    Fault("server_failpoints", 6, Faults.failpoints, None),
    Fault("agent_kill", 4, Faults.kill_agent, None),
    Fault("agent_stop", 2, Faults.stop_agent, None),
    Fault("agent_terminate", 2, Faults.terminate_agent, None),
    Fault("postgres_restart", 1, Faults.postgres_restart, None),
    Fault("postgres_quit", 1, Faults.postgres_quit, None),
    Fault("postgres_kill", 1, Faults.postgres_kill, None),
    Fault("postgres_stop", 1, Faults.postgres_stop, None),
    Fault("backend_kill", 1, Faults.backend_kill, None),
    Fault("backend_stop", 2, Faults.backend_stop, None),
    Fault("backends_terminate", 2, Faults.backends_terminate, None),
    Fault("connections_full", 2, Faults.connections_full, None),
    Fault("disk_full", 1, Faults.disk_full, "disk"),
    Fault("clock_step", 3, Faults.clock_step, "clock"),
    Fault("requests_cut", 2, Faults.requests_cut, None),
    Fault("requests_delayed", 2, Faults.requests_delayed, None),
    Fault("requests_repeated", 3, Faults.requests_repeated, None),
    Fault("partition_database", 2, Faults.partition_database, "network"),
    Fault("partition_agent", 2, Faults.partition_agent, "network"),
]
