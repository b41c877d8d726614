"""What each part of docs/production.md has to have reached, by its heading; `HEADING/N` is the moment after its N-th block. Each
check gets the Walk, whose functions run commands in the machines."""

import os

AUTHORITY = "/usr/local/share/ca-certificates/wavetune.crt"
CLIENT = "--cert /etc/wavetune/tls.crt --key /etc/wavetune/tls.key"
DATABASE = "host=db.example.internal dbname=wavetune user=wavetune"
SUBMIT = "wavetune submit /usr/share/wavetune/kernels/softmax:online --wait --key "
CHANNELS = "wavetune channels --json"
CACHE = "/var/cache/wavetune"
# The environment of the container, and a start of it that prints the status of its fetch and the release that it uses.
CONTAINER = "set -a; . ./container.env; WAVETUNE_ENVIRONMENT=$(cat /etc/wavetune/environment.json); set +a\n"
START = CONTAINER + f"sh entrypoint.sh sh -c 'echo status=$WAVETUNE_FETCH_STATUS; readlink {CACHE}/current' | tee /tmp/start\n"
EIGHT = """INSERT INTO devices (agent, device, backend, environment_id, facts)
SELECT d.agent, 'cpu' || n, d.backend, d.environment_id, d.facts
FROM devices d JOIN agents a ON a.id = d.agent, generate_series(1, 7) n WHERE a.name = 'node2';"""
FETCH = CONTAINER + "export WAVETUNE_TOKEN=$(cat /etc/wavetune/token)\n"


def container_starts(walk, what, status=0):
    """The container's program starts with the first release."""
    walk.succeeds(what, "app1", START + f"grep -qx status={status} /tmp/start\ngrep -qx {walk.kept['release']} /tmp/start")


def node1_is_live(walk, seconds=60):
    walk.succeeds("node1 is live", "admin", "wavetune agents -o csv | grep '^node1,.*,idle,'", seconds)


def id_of_node1(walk):
    return walk.output("admin", "wavetune agents -o csv | sed -n 's/^node1,.*,//p'")


def before_retire(walk):
    """A node of GPUs has a row for each: seven more devices, which the agent would remove when it starts again."""
    walk.succeeds("node2 has eight devices", "db", f"runuser -u postgres -- psql --quiet --set=ON_ERROR_STOP=1 wavetune <<'END'\n{EIGHT}\nEND")
    walk.succeeds("they are listed", "admin", "test $(wavetune agents -o csv | grep -c '^node2,') = 8", 60)


def served_release(walk):
    return walk.output("admin", CHANNELS + r""" | sed -n 's/.*"release": "sha256:\([0-9a-f]*\)".*/\1/p'""").strip()


def packages(walk):
    for name, unit in (("server1", "wavetune-server"), ("node1", "wavetune-agent")):
        walk.fails(f"{unit} is not started by its package", name, f"systemctl is-active {unit}", "inactive")


def certificates(walk):
    for name in ("db", "server1", "tuning", "node1", "app1", "admin"):
        walk.succeeds(f"{name}: the certificate is for it, the key is not for others", name,
                      f"openssl verify -CAfile {AUTHORITY} -verify_hostname $(hostname).example.internal /etc/wavetune/tls.crt\n"
                      "test $(stat -c %a /etc/wavetune/tls.key) = 640")


def servers(walk):
    connect = "wavetune-server token list --database '%s'"
    walk.fails("the database refuses a server without a certificate", "server1",
               connect % f"{DATABASE} sslmode=require sslcert=/nowhere", "certificate")
    walk.fails("it refuses a connection without TLS", "server1", connect % f"{DATABASE} sslmode=disable", "no encryption")
    walk.fails("it refuses a machine whose certificate is no server's", "node1",
               "apt-get install -y --no-install-recommends postgresql-client >/dev/null 2>&1\n"
               f"psql '{DATABASE} sslmode=require sslcert=/etc/wavetune/tls.crt sslkey=/etc/wavetune/tls.key'",
               "certificate authentication failed")


def nginx(walk):
    url = "https://tuning.example.internal/healthz"
    walk.succeeds("nginx answers a client with a certificate", "node1", f"curl -fsS {CLIENT} {url}")
    walk.fails("it refuses one without", "node1", f"curl -fsS {url}", "400")
    walk.fails("it refuses one whose certificate another authority issued", "node1",
               "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=node1.example.internal "
               f"-keyout /tmp/key -out /tmp/crt 2>/dev/null\ncurl -fsS --cert /tmp/crt --key /tmp/key {url}", "400")


def tokens(walk):
    walk.succeeds("the configuration of the admin is private", "admin", "test $(stat -c %a .config/wavetune/config.json) = 600")


def agents(walk):
    walk.succeeds("both agents are live", "admin", "test $(wavetune agents -o csv | grep -c '^node[12],.*,idle,') = 2", 60)
    walk.succeeds("the audit has an agent's address, not the proxy's", "admin", "wavetune audit --action enrol | grep 192.0.2.15")
    walk.kept["node1"] = id_of_node1(walk)


def channel(walk):
    walk.succeeds("the entry is signed", "admin", f"{CHANNELS} | grep '\"signature\":'\n{CHANNELS} | grep '\"counter\": 1,'")
    walk.kept["release"] = served_release(walk)
    walk.fails("the servers refuse an entry that is not signed", "admin", f"wavetune promote sha256:{walk.kept['release']} other",
               "sign")


def container(walk):
    container_starts(walk, "the container starts with the release")
    walk.succeeds("its cache has the tuned config", "app1", f"grep '\"config\":' {CACHE}/current/json/cache.json")
    walk.fails("a cache that no trusted key signed is refused", "app1", FETCH + "wavetune key new /tmp/foreign.key\n"
               f"WAVETUNE_TRUSTED_KEYS=/tmp/foreign.key.pub wavetune fetch --to {CACHE}", "sign")


def alerts(walk):
    walk.succeeds("Prometheus reads both servers", "monitor",
                  "test $(curl -fsS localhost:9090/api/v1/targets | grep -o '\"health\":\"up\"' | wc -l) = 2", 90)
    walk.succeeds("it knows the alerts, and none is pending", "monitor", "curl -fsS localhost:9090/api/v1/rules | "
                  "grep WavetuneAway\ncurl -fsS localhost:9090/api/v1/alerts | grep '\"alerts\":\\[\\]'", 90)


def back_up(walk):
    walk.succeeds("there is a dump that pg_restore can read, and a timer for the next", "db",
                  "systemctl is-active wavetune-backup.timer\npg_restore --list /var/backups/wavetune/*.dump | grep measurements")


def before_upgrade(walk):
    os.environ["WAVETUNE_VERSION"] = "99.0.1"  # for the block that builds this tree again
    walk.succeeds("a client starts to fetch all the time", "app1", "cat >client.sh <<'END'\n" + FETCH + f"""
until test -e /tmp/enough; do
  wavetune fetch --to {CACHE} --format json >/tmp/last 2>&1 || cat /tmp/last
  echo asked
  sleep 0.1
done
END
systemd-run -q --unit=client --working-directory=/root bash -c 'bash client.sh >client.txt 2>&1'""")


def upgrade(walk):
    walk.succeeds("it was answered each time during the upgrade", "app1", "touch /tmp/enough\ngrep -c asked client.txt\n"
                  "test $(grep -c asked client.txt) -gt 20\n! grep -vx asked client.txt")
    for name, program in (("server1", "server"), ("server2", "server"), ("node1", "agent")):
        walk.succeeds(f"{name} runs the next version", name, f"wavetune-{program} --version | grep -F 99.0.1\n"
                      f"cmp /proc/$(systemctl show -P MainPID wavetune-{program})/exe /usr/bin/wavetune-{program}")
    node1_is_live(walk)
    walk.equal("as the agent that it was", id_of_node1(walk), walk.kept["node1"])


def retired(walk):
    # The other server may answer from the summary of the fleet that it made before the removal.
    walk.succeeds("node2 is gone, node1 is not", "admin",
                  "for _ in $(seq 20); do wavetune agents >/tmp/agents; grep -q node2 /tmp/agents || break; sleep 1; done\n"
                  "grep node1 /tmp/agents\n! grep node2 /tmp/agents")
    walk.succeeds("nothing of the agent is left on node2", "node2",
                  "test ! -e /usr/bin/wavetune-agent\ntest ! -e /var/lib/private/wavetune-agent\ntest ! -e /etc/wavetune")


def before_roll_back(walk):
    walk.succeeds("a bad release is published", "admin", SUBMIT + "rows=128,columns=256\n"
                  "wavetune publish --channel stable --sign-key publisher.key --expires 30d")
    walk.differ("the channel points at it", served_release(walk), walk.kept["release"])


def rolled_back(walk):
    walk.equal("the channel points at the first release", served_release(walk), walk.kept["release"])
    container_starts(walk, "the container starts with it")


def servers_stopped(walk):
    container_starts(walk, "while no server runs, the container starts with its last cache", 5)
    walk.succeeds("the alert WavetuneAway reaches Alertmanager", "monitor",
                  "curl -fsS localhost:9093/api/v2/alerts | grep WavetuneAway", 240)


def restored(walk):
    walk.succeeds("the alert ends", "monitor",
                  "curl -fsS localhost:9090/api/v1/alerts >/tmp/alerts\n! grep WavetuneAway /tmp/alerts", 90)
    node1_is_live(walk, 120)
    walk.succeeds("a job after the dump is forgotten, and is another one now", "admin",
                  SUBMIT + "rows=128,columns=256 --json | tee /tmp/job\ngrep -E '\"job\": \"?1000' /tmp/job")
    container_starts(walk, "the container starts with the restored release, signed again")


def both_keys(walk):
    walk.succeeds("the entry has two signatures", "admin", f"test $({CHANNELS} | grep -c '\"signature\":') = 2")
    container_starts(walk, "the container starts with it")


def key_replaced(walk):
    container_starts(walk, "the container, which trusts the new key alone, starts")
    walk.fails("the servers refuse any other key", "admin", "wavetune key new other.key\n"
               f"wavetune promote sha256:{walk.kept['release']} stable --sign-key other.key", "key")
    walk.succeeds("the new key publishes", "admin", "wavetune publish --channel stable --sign-key publisher.key --expires 30d")


def certificates_replaced(walk):
    for host, port in (("server1", 7200), ("server2", 7200), ("tuning", 443), ("db", 5432)):
        options = "-starttls postgres" if host == "db" else ""
        walk.succeeds(f"{host} presents its new certificate", "admin",
                      f"ssh {host} openssl x509 -noout -serial -in /etc/wavetune/tls.crt >/tmp/one\n"
                      f"openssl s_client {options} -connect {host}:{port} 2>/dev/null | openssl x509 -noout -serial >/tmp/other\n"
                      "cmp /tmp/one /tmp/other", 60)
    walk.succeeds("node1 works on", "admin", SUBMIT + "rows=32,columns=128")
    walk.succeeds("the container starts with its new token", "app1", START + "grep -qx status=0 /tmp/start")
    walk.succeeds("node1 can restart", "node1", "systemctl restart wavetune-agent")
    node1_is_live(walk)
    walk.equal("as the agent that it was", id_of_node1(walk), walk.kept["node1"])


def disk(walk):
    walk.succeeds("the servers are ready at the end", "admin", "timeout 60 ./ready.sh server1 server2")


BEFORE = {"Upgrade": before_upgrade, "Retire a node": before_retire, "Roll back a channel": before_roll_back}
AFTER = {
    "Packages": packages,
    "Certificates": certificates,
    "Two servers": servers,
    "nginx": nginx,
    "Tokens": tokens,
    "Agents": agents,
    "A signed channel": channel,
    "A container that starts tuned": container,
    "Alerts": alerts,
    "Back up": back_up,
    "Upgrade": upgrade,
    "Retire a node": retired,
    "Roll back a channel": rolled_back,
    "Restore/1": servers_stopped,
    "Restore": restored,
    "Replace the publisher's key/1": both_keys,
    "Replace the publisher's key": key_replaced,
    "Replace certificates and tokens": certificates_replaced,
    "Disk": disk,
}
