# A host that is set up, and changes, in each way that differs between hosts: profd goes on, with a lesser service that
# it names, or refuses in one line that says what to do.
. /t/profd.sh
state=/var/lib/profd
settings=/proc/sys/kernel
short="[Store] Window=5s [Limits] Cpu=50%"

begin() {
        # shellcheck disable=SC2086 # words are lines
        configure ${short} "$@"
        start_profd
        up
}

start_and_up() {
        start_profd && up
}

# again WHAT...: stopped, and started with the same configuration
again() {
        stop_profd && start_profd && up
}

# soon CONDITION...: it comes about, on a slow machine too
soon() {
        for _ in $(seq 60); do
                "$@" >/tmp/soon 2>&1 && { head -1 /tmp/soon; return 0; }
                sleep 1
        done
        cat /tmp/soon
        return 1
}

stored() {
        ls $state/*.pb.gz
}

status_says() {
        profctl status >/tmp/status && grep -e "$1" /tmp/status || { cat /tmp/status; return 1; }
}

# sampled PID: there are samples of that process now
sampled() {
        profctl dump --for 3s --event samples --pid "$1" -o /tmp/one.folded || return 1
        grep ';main;hot_' /tmp/one.folded && return 0
        head -3 /tmp/one.folded
        return 1
}

healthy() {
        profctl status --json >/dev/null && ! grep -q 'trouble:' /tmp/status
}

# ordered: each stored window ends before the next one begins, to the second that names have.
ordered() {
        ls $state | sed -n 's/^\(....\)\(..\)\(..\)T\(..\)\(..\)\(..\)Z_\([0-9]*\).pb.gz/\1-\2-\3 \4:\5:\6 \7/p' >/tmp/windows
        end=0
        while read -r day time seconds; do
                start=$(date -u -d "$day $time" +%s)
                [ $start -ge $((end - 1)) ] || { echo "overlap at $day $time"; cat /tmp/windows; return 1; }
                end=$((start + seconds))
        done </tmp/windows
        echo "$(wc -l </tmp/windows) windows, one after the other"
        profctl list >/tmp/list
}

capability() { # capability NUMBER: profd has it
        held=$(awk '/^CapPrm:/ { print $2 }' /proc/$profd/status 2>/dev/null)
        [ -n "$held" ] && [ $((0x$held >> $1 & 1)) = 1 ]
}

start_work

# -- perf_event_paranoid --
check paranoid-default grep -x 3 $settings/perf_event_paranoid
caps=$(of_unit AmbientCapabilities | sed 's/CAP_SYS_ADMIN//')
check paranoid-3-without-admin refuses 'perf_event_paranoid=3'
echo 2 >$settings/perf_event_paranoid
check paranoid-2-without-admin begin
stop_profd
caps=
check paranoid-2 begin
check paranoid-2-lays-down-admin not capability 21
check paranoid-2-doctor says 'ok .*perf_event_paranoid  *2'

# -- CPUs that go and come back --
echo 0 >/sys/devices/system/cpu/cpu1/online
check hotplug-gone soon status_says 'on 1 CPUs'
check hotplug-gone-sampled soon sampled $work
echo 1 >/sys/devices/system/cpu/cpu1/online
check hotplug-back soon status_says 'on 2 CPUs'
taskset -p 2 $work >/dev/null
check hotplug-back-sampled soon sampled $work
taskset -p 3 $work >/dev/null
check hotplug-accounts accounts
check hotplug-doctor says 'CPUs  *2 of 2'

# -- a clock that is set --
check clock-windows soon stored
date -s "@$(($(date +%s) + 3600))" >/dev/null
sleep 12
check clock-forward ordered
check clock-forward-sampled soon sampled $work
date -s "@$(($(date +%s) - 3600))" >/dev/null
sleep 20
check clock-back ordered
check clock-back-sampled soon sampled $work
check clock-accounts accounts

# -- sleep --
if [ -e /sys/class/rtc/rtc0/wakealarm ] && grep -q mem /sys/power/state; then
        echo 0 >/sys/class/rtc/rtc0/wakealarm
        echo +4 >/sys/class/rtc/rtc0/wakealarm
        echo mem >/sys/power/state
        check sleep-woke grep . /sys/class/rtc/rtc0/since_epoch
        check sleep-both-cpus soon status_says 'on 2 CPUs'
        taskset -p 2 $work >/dev/null
        check sleep-sampled soon sampled $work
        taskset -p 3 $work >/dev/null
        check sleep-accounts accounts
else
        echo "this guest cannot sleep: $(cat /sys/power/state)"
fi

# -- kptr_restrict --
for v in 0 1; do
        echo $v >$settings/kptr_restrict
        check kptr-$v again
        check kptr-$v-names says 'ok .*kptr_restrict  *'$v
done
echo 2 >$settings/kptr_restrict
check kptr-2 again
check kptr-2-says status_says 'kernel functions have no names'
check kptr-2-doctor says 'BAD .*kptr_restrict  *2.*sysctl kernel.kptr_restrict=1'
echo 1 >$settings/kptr_restrict

# -- perf's own limits --
echo 50 >$settings/perf_event_max_sample_rate
check rate-50 again
check rate-50-says status_says 'at 50 Hz, the most that the kernel allows'
check rate-50-doctor says 'highest rate  *50 Hz.*sysctl'
echo 100000 >$settings/perf_event_max_sample_rate
echo 0 >$settings/perf_cpu_time_max_percent
check throttling-doctor says 'perf throttling  *is off'

# -- /proc that hides processes --
mount -o remount,hidepid=2 /proc
check hidepid-2 again
check hidepid-2-sampled soon sampled $work
check hidepid-2-doctor says 'hidepid'
mount -o remount,hidepid=0 /proc

# -- few descriptors --
files=4096
check files-4096 again
check files-4096-sampled soon sampled $work
files=24
stop_profd
check files-24 refuses 'LimitNOFILE'
files=

# -- cgroups --
group() { # group DIRECTORY: the work moves there
        mkdir -p "$1" && echo $work >"$1/cgroup.procs"
}
unit_is() {
        profctl report --stdio --for 3s --pid $work --sort unit >/tmp/unit && grep -w "$1" /tmp/unit || { cat /tmp/unit; return 1; }
}
start_profd
check cgroup-v2 up
group /sys/fs/cgroup/system.slice/two.service
check cgroup-v2-unit soon unit_is two.service
check cgroup-v2-doctor says 'cgroups  *v2'
stop_profd
echo $work >/sys/fs/cgroup/cgroup.procs
umount /sys/fs/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
start_profd
check cgroup-v1 up
group /sys/fs/cgroup/systemd/system.slice/one.service
check cgroup-v1-unit soon unit_is one.service
check cgroup-v1-doctor says 'cgroups  *v1'
stop_profd
mount -t cgroup2 cgroup /sys/fs/cgroup/unified
start_profd
check cgroup-hybrid up
group /sys/fs/cgroup/unified/system.slice/hybrid.service
check cgroup-hybrid-unit soon unit_is hybrid.service
check cgroup-hybrid-doctor says 'cgroups  *hybrid'
stop_profd

# -- where windows go --
mount -t tmpfs -o size=256k,mode=755 small $state
check disk-small begin
check disk-windows soon stored
dd if=/dev/zero of=$state/filler bs=4k 2>/dev/null
check disk-full soon status_says 'trouble:.*[Nn]o space'
check disk-full-doctor says 'BAD .*store.*No space'
check disk-full-sampled soon sampled $work
rm $state/filler
check disk-freed soon says 'ok .*store'
mount -o remount,ro $state
check disk-read-only soon status_says 'trouble:.*[Rr]ead-only'
check disk-read-only-doctor says 'BAD .*store.*[Rr]ead-only'
check disk-read-only-sampled soon sampled $work
stop_profd
check disk-read-only-start start_and_up
check disk-read-only-start-doctor says 'BAD .*store.*read-only'
check disk-read-only-start-sampled soon sampled $work
stop_profd
umount $state

# -- counters that somebody else holds --
if [ -e /t/fakepmu.ko ]; then
        find_event
        echo 1 >/sys/module/fakepmu/parameters/busy
        check counters-busy begin
        check counters-busy-says status_says 'cycles as cpu-clock on 2 CPUs: another user holds the hardware counters'
        check counters-busy-other status_says 'cache-misses on 0 CPUs: another user holds the hardware counters'
        check counters-busy-doctor says 'cycles .*another user holds the hardware counters'
        check counters-busy-sampled soon sampled $work
        echo 0 >/sys/module/fakepmu/parameters/busy
        check counters-free until_says 'cycles on 2 CPUs'
        check counters-free-other status_says 'cache-misses on 2 CPUs *$'
        check counters-free-sampled soon sampled $work
        check counters-accounts accounts
        stop_profd
fi

# -- a kernel without types --
mount --bind /dev/null /sys/kernel/btf/vmlinux
check btf-hidden refuses 'BTF'
check btf-hidden-doctor says 'BAD .*BTF  *missing'
umount /sys/kernel/btf/vmlinux

# -- lockdown, which goes one way --
if [ -e /sys/kernel/security/lockdown ]; then
        echo integrity >/sys/kernel/security/lockdown
        check lockdown-integrity begin
        check lockdown-integrity-sampled soon sampled $work
        check lockdown-integrity-doctor says 'ok .*lockdown  *integrity'
        stop_profd
        echo confidentiality >/sys/kernel/security/lockdown
        check lockdown-confidentiality refuses 'lockdown'
        check lockdown-confidentiality-doctor says 'BAD .*lockdown .*boot with lockdown=integrity'
fi
kill $work
