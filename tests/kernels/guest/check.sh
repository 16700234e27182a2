# What the scripts of a guest share. Each check ends in a line that begins with OK or FAIL. An emulated machine on a busy
# host may be without a CPU for seconds: a check may try three times, and what failed before is said; one that cannot
# judge (exit status 77, with its reason) is not held against the kernel.
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
                        return 0
                fi
                if [ $status = 77 ]; then
                        cat /tmp/output
                        echo "OK $name: not judged"
                        return 0
                fi
                sed "s/^FAIL/failed at try $try:/" /tmp/output
        done
        echo "FAIL $name"
        return 1
}

# The event that time is measured with here.
find_event() {
        event=cpu-clock
        if [ -e /t/fakepmu.ko ]; then
                check test-pmu insmod /t/fakepmu.ko
                event=cycles
        fi
        ls -d /sys/bus/event_source/devices/armv8* >/dev/null 2>&1 && event=cycles
}
