# Runs in the guest. Each check ends in a line that begins with OK or FAIL.
cd /t || exit 1
check() {
        name=$1
        shift
        if "$@"; then
                echo "OK $name"
        else
                echo "FAIL $name: exit status $?"
        fi
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
        # nothing here. (As `failed`, so that it is not taken for a check's.)
        smoke cycles 199 | sed 's/^FAIL weight/failed weight/; s/^FAIL frequency/failed frequency/; s/^FAILED//'
fi
[ -e /t/fakepmu.ko ] && check smoke-cache-misses smoke cache-misses 199
for program in deep_static signals_static split31 forks; do
        check "stacks-$program-$event" truth_run -e $event -f 199 4 /t/$program
done
