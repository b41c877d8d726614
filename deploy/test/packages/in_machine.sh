#!/bin/bash
# Runs inside of the machine of deploy/test/packages.sh, as its unit wavetune-test: /io/old and /io/next have the packages.
# shellcheck source=deploy/test/checks.sh
. /io/checks.sh
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root
database='host=/run/postgresql dbname=wavetune'
kernel=/usr/share/wavetune/kernels/softmax:online

not() { ! "$@"; }
state() { [ "$(systemctl is-active "wavetune-$1")" = "$2" ]; }
enabled() { [ "$(systemctl is-enabled "wavetune-$1")" = "$2" ]; }
serves() { curl -fsS "http://127.0.0.1:$1/healthz" | grep -qF "\"$2\""; }
ready() { curl -fsS "http://127.0.0.1:$1/readyz"; }
live() { wavetune agents --json | grep -q '"state": "live"'; }
agent_id() { wavetune agents --json | grep -o '"agent": "[^"]*"'; }
pid_of() { systemctl show -P MainPID "wavetune-$1"; }
install_packages() { dpkg -i --force-confdef --force-confold "$1"/*.deb </dev/null; }
tune() { wavetune submit "$kernel" --key "rows=$1,columns=256" --environment "$(wavetune-agent env)" --wait; }

version() { dpkg-deb -f "$(echo "/io/$1"/wavetune_*.deb)" Version; }
old=$(version old) next=$(version next)

echo "== install $old"
check "the packages install, with nothing downloaded" install_packages /io/old
for service in server agent; do
  check "$service: not enabled by its installation" enabled $service disabled
  check "$service: not started by its installation" state $service inactive
  check "$service: its configuration is for root only" test "$(stat -c %a:%U /etc/wavetune/$service.env)" = 600:root
  check "$service: man finds its page" man -w wavetune-$service
done
check "the user wavetune exists" id wavetune
check "the group render exists" getent group render
check "man finds the page of a command" man -w wavetune-server-serve
check "bash loads the completion by itself" bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader wavetune; complete -p wavetune'

echo "== server and agent"
check "role" runuser -u postgres -- createuser wavetune
check "database" runuser -u postgres -- createdb -O wavetune wavetune
check "the server starts with the configuration of the package" systemctl enable --now wavetune-server
check "it becomes ready" wait_until 60 ready 7200
token=$(runuser -u wavetune -- wavetune-server token make admin --role admin --database "$database")
export WAVETUNE_URL=http://127.0.0.1:7200 WAVETUNE_TOKEN=$token
printf 'WAVETUNE_URL=http://127.0.0.1:7200\nWAVETUNE_TOKEN=%s\n' "$(wavetune token make node --role enrol)" >>/etc/wavetune/agent.env
check "the agent starts" systemctl enable --now wavetune-agent
check "it enrols" wait_until 60 live
check "a kernel of the package is tuned" tune 64
check "its winner is published" wavetune publish --environment "$(wavetune-agent env)" --channel stable
check "and fetched" wavetune fetch --channel stable --environment "$(wavetune-agent env)" --to /tmp/cache
check "the cache has an entry" grep -q columns /tmp/cache/current/json/cache.json

echo "== upgrade to $next, with changes of the configuration by hand"
echo 'WAVETUNE_PORT=7210' >>/etc/wavetune/server.env
sed -i 's,127.0.0.1:7200,127.0.0.1:7210,' /etc/wavetune/agent.env
systemctl restart wavetune-server wavetune-agent
wait_until 60 ready 7210
export WAVETUNE_URL=http://127.0.0.1:7210
wait_until 60 live
sum=$(sha256sum /etc/wavetune/*.env) server=$(pid_of server) agent=$(pid_of agent) id=$(agent_id)
check "the packages install over the old ones" install_packages /io/next
check "the changed configuration is as it was" test "$(sha256sum /etc/wavetune/server.env /etc/wavetune/agent.env)" = "$(echo "$sum" | sort -rk2)"
check "the next version's configuration is beside it" grep -q 'A line of the next version' /etc/wavetune/server.env.dpkg-dist
check "the server was restarted" test "$(pid_of server)" != "$server"
check "the agent was restarted" test "$(pid_of agent)" != "$agent"
check "the server of the next version serves at the changed port" wait_until 60 serves 7210 "$next"
check "it becomes ready" wait_until 60 ready 7210
check "the agent is live again" wait_until 60 live
check "as the same agent" test "$(agent_id)" = "$id"
check "another key is tuned" tune 128
check "what was tuned before is there" test "$(wavetune jobs --json | grep -o '"state": "done"' | wc -l)" = 2
check "both services are still enabled" eval 'enabled server enabled && enabled agent enabled'

echo "== what is stopped or disabled stays so"
systemctl disable --now wavetune-agent
check "the packages install once more" install_packages /io/next
check "the agent is still stopped" state agent inactive
check "the agent is still disabled" enabled agent disabled
check "the server runs" state server active

echo "== remove, install again, purge"
systemctl enable --now wavetune-agent
wait_until 60 live
check "the packages can be removed" dpkg -r wavetune wavetune-agent wavetune-server
check "no process of them is left" not pgrep -x 'wavetune.*'
check "no program of them is left" not ls /usr/bin/wavetune*
check "the configuration is as it was" test "$(sha256sum /etc/wavetune/server.env /etc/wavetune/agent.env)" = "$(echo "$sum" | sort -rk2)"
check "the agent's identity is there" ls /var/lib/private/wavetune-agent/token
check "the packages install again" install_packages /io/next
check "the services are enabled again" eval 'enabled server enabled && enabled agent enabled'
systemctl start wavetune-server wavetune-agent
check "the agent is live again" wait_until 60 live
check "as the same agent" test "$(agent_id)" = "$id"
check "the packages can be purged" dpkg -P wavetune wavetune-agent wavetune-server
check "no configuration is left" not ls /etc/wavetune
check "no state of the agent is left" not ls /var/lib/private/wavetune-agent
check "no link to a unit is left" not sh -c 'find /etc/systemd /var/lib/systemd -name "*wavetune-[as]*" | grep .'
check "the database is left" runuser -u postgres -- psql -qAtc 'SELECT 1 FROM jobs LIMIT 1' wavetune

journalctl -q --no-pager -u wavetune-server -u wavetune-agent >/io/journal.txt
checks_end
echo DONE
systemctl --no-block poweroff
