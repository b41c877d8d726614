"""A full disk under PostgreSQL: the server states it, and what it acknowledged before, meanwhile and afterwards is there."""

import os
import subprocess

import harness
import pytest
from hands import ENVIRONMENT, Hand, configs_of, register
from harness import wait_until

SIZE_MIB = 160  # a new cluster has about 40, and a copied database about 10
FULL = "No space left on device"


class SmallPostgres(harness.Postgres):
    """A cluster in a file system of its own, in memory."""

    def _make_cluster(self):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0755", "tmpfs", self.folder], capture_output=True,
                              text=True)
        if done.returncode != 0:
            os.rmdir(self.folder)
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        super()._make_cluster()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.kill()
        subprocess.run(["umount", self.folder], check=True)
        os.rmdir(self.folder)

    def fill(self):
        """Writes a file until the disk is full."""
        with open(self.folder / "ballast", "wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while file.write(b"\0" * size) == size:
                        pass
                except OSError:
                    pass
        assert os.statvfs(self.folder).f_bavail == 0

    def make_room(self):
        (self.folder / "ballast").unlink()


@pytest.fixture
def disk():
    cluster = SmallPostgres()
    yield cluster
    cluster.stop()


class Work:
    """An agent that takes leases and posts their results, and remembers which measurements were acknowledged."""

    def __init__(self, server):
        self.server, self.hand = server, Hand(server, "a")
        answer = server.request("POST", "/v1/jobs", {"kernel": register(server), "key": {"n": 1}, "environment": ENVIRONMENT,
                                                     "space": {"parameters": {"A": list(range(2000))}}})
        assert answer.status == 201, answer
        self.job, self.acknowledged, self.refused = answer.json["job"], set(), []

    def cycle(self):
        """The statuses of a lease request and of its results."""
        lease = self.hand.pull()
        if lease.status != 200:
            return [lease.status]
        return [200, self.post(lease.json)]

    def post(self, lease):
        answer = self.hand.post(lease, outcomes=dict.fromkeys(configs_of(lease), "runtime"), detail="x" * 900)
        if answer.status == 200:
            self.acknowledged |= set(configs_of(lease))
        else:
            assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1, answer
            self.refused.append(lease)
        return answer.status


def stored(disk, database):
    found = disk.sql("select config from measurements where not late and stage = 'screen'", conninfo=database).split()
    assert len(found) == len(set(found)), "one was stored twice"
    return set(map(int, found))


def readyz(server):
    return server.request("GET", "/readyz").body.decode()


@pytest.fixture
def work(disk, start):
    server = start(harness.Server, disk.database(), options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
    work = Work(server)
    for _ in range(5):
        assert work.cycle() == [200, 200]
    return work


def assert_goes_on(disk, work):
    """With room again refused posts succeed, and so does new work; all that was acknowledged is stored, once."""
    server = work.server
    wait_until(lambda: server.request("GET", "/readyz").status == 200, 30, "the server to be ready")
    for lease in list(work.refused):
        wait_until(lambda lease=lease: work.post(lease) == 200, 30, "a refused post to succeed")  # the agent's spool would do this
    wait_until(lambda: work.cycle() == [200, 200], 30, "new work")
    assert work.acknowledged == stored(disk, server.database)


def test_when_tables_cannot_grow_the_server_answers_503_and_says_why(disk, work):
    server = work.server
    disk.fill()
    wait_until(lambda: work.cycle()[-1] == 503, 60, "a refused request")
    assert FULL in server.messages, "the log has the reason"
    wait_until(lambda: server.request("GET", "/v1/jobs").status == 200, 30, "a read, which needs no room")
    answer = server.request("GET", "/readyz")
    assert answer.status == 503 or FULL in " ".join(answer.json["warnings"]), answer
    assert work.acknowledged <= stored(disk, server.database)
    disk.make_room()
    assert_goes_on(disk, work)


def test_when_the_log_cannot_grow_postgresql_ends_and_nothing_acknowledged_is_lost(disk, work):
    """PostgreSQL writes nothing without its log, so it stops. With room again it recovers."""
    server = work.server
    disk.fill()
    for _ in range(40):  # uses up the segments that exist already
        if disk.process.poll() is None:
            disk.sql("select pg_switch_wal()", conninfo=server.database, check=False)
            work.cycle()
    wait_until(lambda: server.request("GET", "/readyz").status == 503, 30, "the server to notice")
    assert "the database is away" in readyz(server)
    assert work.cycle() == [503]
    disk.make_room()
    if disk.process.poll() is not None:
        disk.start()
    assert_goes_on(disk, work)
