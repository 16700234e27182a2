#!/bin/bash
# Debian as it is installed, systemd as PID 1: the package comes, is killed, restarted, upgraded and goes. A service,
# after multi-user.target; nothing is set but by the package and by Debian, until it is said.
exec >/dev/ttyS0 2>&1 </dev/null
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/t HOME=/root DEBIAN_FRONTEND=noninteractive
echo "GUEST kernel $(uname -r), $(nproc) CPUs, $(systemctl --version | head -1)"
. /t/check.sh
. /t/profd.sh
unit=/lib/systemd/system/profd.service
drop_in=/etc/systemd/system/profd.service.d/less.conf

# soon CONDITION...: within some minutes
soon() {
        for _ in $(seq 180); do
                "$@" >/tmp/soon 2>&1 && { tail -1 /tmp/soon; return 0; }
                sleep 1
        done
        cat /tmp/soon
        systemctl status profd.service --no-pager -l
        return 1
}
pid_of() { systemctl show -P MainPID profd.service; }
answers() { systemctl is-active profd.service && profctl status >/tmp/status; }
another() { answers && [ "$(pid_of)" != "$pid" ]; }
took_over() { journalctl -u profd.service --no-pager -o cat | grep 'took over [0-9]* samples of the daemon before' | wc -l | grep -x "$1"; }
holds() { # holds NUMBER: the process has that capability, or may have it again
        grep -E '^Cap(Prm|Eff|Inh|Amb):' "/proc/$(pid_of)/status" >/tmp/caps
        while read -r _ set; do
                [ $((0x$set >> $1 & 1)) = 0 ] || { cat /tmp/caps; return 0; }
        done </tmp/caps
        return 1
}
gone() { ! systemctl is-active profd.service && [ "$(pid_of)" = 0 ]; }
said() { journalctl -u profd.service --no-pager -o cat | grep -e "$1"; }
begins() { systemctl reset-failed profd.service; systemctl restart profd.service; answers; }

check pid-1 grep -x systemd /proc/1/comm
check paranoid-is-debians grep -x 3 /proc/sys/kernel/perf_event_paranoid
check paranoid-is-set-by-nobody not grep -rs perf_event_paranoid /etc/sysctl.conf /etc/sysctl.d /usr/lib/sysctl.d /run/sysctl.d

install() { # with nothing to complain of
        dpkg -i /t/profd.deb >/tmp/dpkg 2>&1 && ! grep -i -e 'could not' -e fail /tmp/dpkg || { cat /tmp/dpkg; journalctl -u 'profd*' --no-pager; return 1; }
}
both_run() { systemctl is-active profd.service profd.socket; }
socket_since() { systemctl show -P ActiveEnterTimestampMonotonic profd.socket; }

check install install
check install-starts-both both_run
check install-sets-nothing grep -x 3 /proc/sys/kernel/perf_event_paranoid
check install-enables systemctl is-enabled profd.service profd.socket
check install-starts soon answers
check status grep 'on [0-9]* CPUs' /tmp/status
check runs-as-profd test "$(stat -c %U "/proc/$(pid_of)")" = profd
check paranoid-3-holds-admin holds 21
check paranoid-3-doctor says 'capabilities  *profd has all that it needs'
grep -v 'samples lost .* by missed' /tmp/doctor >/tmp/rest # an emulated machine leaves out ticks
check doctor-finds-no-problem not grep '^BAD ' /tmp/rest
check memory-is-limited test "$(cat /sys/fs/cgroup/system.slice/profd.service/memory.max)" = $((320 << 20))
start_work
check samples soon named 10
check accounts accounts

pid=$(pid_of)
check kill systemctl kill -s KILL profd.service
check kill-comes-back soon another
check kill-takes-over soon took_over 1
check kill-accounts accounts
pid=$(pid_of)
check restart systemctl restart profd.service
check restart-another soon another
check restart-takes-over soon took_over 2
pid=$(pid_of)
since=$(socket_since)
check upgrade install
check upgrade-runs-both both_run
check upgrade-leaves-the-socket-open test "$(socket_since)" = "$since"
check upgrade-another soon another
check upgrade-takes-over soon took_over 3
check upgrade-accounts accounts
check upgrade-samples soon named 10

# Without CAP_SYS_ADMIN
mkdir -p "${drop_in%/*}"
all=$(of_unit AmbientCapabilities)
less=$(echo "$all" | sed 's/ *CAP_SYS_ADMIN//')
printf '[Service]\nAmbientCapabilities=\nAmbientCapabilities=%s\nCapabilityBoundingSet=\nCapabilityBoundingSet=%s\nRestart=no\n' "$less" "$less" >$drop_in
systemctl daemon-reload
systemctl restart profd.service
check paranoid-3-needs-admin soon gone
check paranoid-3-needs-admin-says soon said 'perf_event_paranoid=3'
sysctl -q kernel.perf_event_paranoid=2
check paranoid-2-needs-none soon begins
check paranoid-2-needs-none-has-none not holds 21
check paranoid-2-needs-none-samples soon named 10
rm $drop_in
systemctl daemon-reload
check paranoid-2-as-installed soon begins
check paranoid-2-lays-admin-down not holds 21
check paranoid-2-samples soon named 10
sysctl -q kernel.perf_event_paranoid=3

check stop systemctl stop profd.socket profd.service
check stop-is-clean test "$(systemctl show -P Result profd.service)" = success
check stored ls /var/lib/profd/*.pb.gz
check remove dpkg -r profd
check remove-keeps-profiles ls /var/lib/profd/*.pb.gz
check purge dpkg -P profd
check purge-leaves-nothing not ls -d /var/lib/profd /etc/profd /var/cache/profd /run/profd
check purge-no-unit not systemctl cat profd.service
failed_units() { systemctl list-units --failed --plain --no-legend | grep profd; }
check purge-no-failed-unit not failed_units
kill $work
echo "GUEST done"
systemctl poweroff --force --force
