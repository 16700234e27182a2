# Runs in the guest. Each check ends in a line that begins with OK or FAIL. An emulated machine on a busy host may be
# without a CPU for seconds: a check may try three times, and what failed before is said; one that cannot judge (exit
# status 77, with its reason) is not held against the kernel.
cd /t || exit 1
check() {
        name=$1
        shift
        for try in 1 2 3; do
                "$@" >/tmp/output 2>&1
                status=$?
                if [ $status = 0 ]; then
                        cat /tmp/output
                        echo "OK $name"
                        return
                fi
                if [ $status = 77 ]; then
                        cat /tmp/output
                        echo "OK $name: not judged"
                        return
                fi
                sed "s/^FAIL/failed at try $try:/" /tmp/output
        done
        echo "FAIL $name"
}

# Throttling is for real machines: an emulated one is too slow for the kernel's idea of how long a sample takes.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent

event=cpu-clock
if [ -e /t/fakepmu.ko ]; then
        check test-pmu insmod /t/fakepmu.ko
        event=cycles
fi
ls -d /sys/bus/event_source/devices/armv8* >/dev/null 2>&1 && event=cycles

check smoke-cpu-clock smoke cpu-clock 199
if [ -e /t/fakepmu.ko ]; then
        check smoke-cycles smoke cycles 199
elif [ $event = cycles ]; then
        # QEMU's counter overflows more often than it counts: how many samples there are, and what they weigh, says
        # nothing here.
        smoke cycles 199 | sed 's/^FAIL \(weight\|frequency\)/not judged: \1/; s/^FAILED//'
fi
[ -e /t/fakepmu.ko ] && check smoke-cache-misses smoke cache-misses 199
for program in deep_static signals_static split31 forks; do
        check "stacks-$program-$event" truth_run -e $event -f 199 4 /t/$program
done
