# The packaged profd, with the configuration that it ships, on this kernel: it samples, names, accounts, stores, stops.
. /t/profd.sh
[ -n "$event" ] || find_event

echo "perf_event_paranoid is $(cat /proc/sys/kernel/perf_event_paranoid)"
start_work
start_profd
if check service-starts up; then
        sed 's/^/    /' /tmp/status
        case $event in
        cycles) check service-cycles grep -q '^ *events: cycles on 2 CPUs' /tmp/status ;;
        *) check service-clock grep -q 'cycles as cpu-clock on 2 CPUs' /tmp/status ;;
        esac
        [ -e /t/fakepmu.ko ] && check service-cache-misses grep -q 'cache-misses on 2 CPUs' /tmp/status
        # QEMU's counter overflows where it suits the emulation: the names are right there, shares say nothing.
        check service-names until_named 15
        [ "$(uname -m)" = aarch64 ] || check service-shares split 15
        check service-accounts accounts
        check service-doctor says 'capabilities  *profd has all that it needs'
        check service-kernel-names says 'kptr_restrict .*functions have names'
        grep -v 'samples lost .* by missed' /tmp/doctor >/tmp/rest # an emulated machine leaves out ticks
        [ ! -e /t/fakepmu.ko ] || held
        check service-no-problem not grep '^BAD ' /tmp/rest
        profctl doctor | sed 's/^/    /'
        check service-stops stop_profd
        check service-stored ls /var/lib/profd/*.pb.gz
fi
kill $work
