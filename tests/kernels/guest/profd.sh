# profd as the package installs it, without systemd: what the unit says about its user, capabilities, limits and
# folders is done here, from the unit itself.
unit=/lib/systemd/system/profd.service
log=/tmp/profd.log

of_unit() {
        sed -n "s/^$1=//p" $unit | tail -1
}

# capabilities SET: as setpriv wants them
capabilities() {
        echo "-all$(for c in $1; do echo ",+$(echo "${c#CAP_}" | tr A-Z a-z)"; done | tr -d '\n')"
}

# start_profd [OPTION...]: as the unit starts it, with $caps for its capabilities when that is set. Its standard error
# is in $log.
start_profd() {
        set_of=$(capabilities "${caps:-$(of_unit AmbientCapabilities)}")
        for dir in /var/lib/profd /var/cache/profd /run/profd; do
                mkdir -p $dir 2>/dev/null
                chown profd:profd $dir 2>/dev/null
        done
        (
                ulimit -n "${files:-$(of_unit LimitNOFILE)}"
                [ "$(of_unit LimitMEMLOCK)" != infinity ] || ulimit -l unlimited
                CACHE_DIRECTORY=/var/cache/profd exec /usr/bin/setpriv --reuid=profd --regid=profd --clear-groups --no-new-privs \
                        --bounding-set="$set_of" --inh-caps="$set_of" --ambient-caps="$set_of" /usr/sbin/profd "$@" 2>$log
        ) &
        profd=$!
}

# up: it answers, within a minute or two of a slow machine.
up() {
        for _ in $(seq 240); do
                profctl status >/tmp/status 2>&1 && return 0
                [ -d /proc/$profd ] || break
                sleep 0.5
        done
        echo "profd does not come up: $(cat $log)"
        return 1
}

# stop_profd: its exit status, after SIGTERM.
stop_profd() {
        kill $profd 2>/dev/null
        wait $profd
}

# refuses WORDS: it does not start, and says why in one line that has the words.
refuses() {
        start_profd
        wait $profd
        status=$?
        [ $status = 1 ] || { echo "exit status $status"; cat $log; return 1; }
        grep -q -e "$1" $log || { cat $log; return 1; }
        grep -e "$1" $log | cut -c1-200
}

# number KEY: of the daemon's status; the first one of this name
number() {
        profctl status --json | sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" | head -1
}

# Every sample taken is delivered, lost by a named cause, or waits for the next drain. (Missed ticks were not taken.)
accounts() {
        profctl status --json >/tmp/json || return 1
        awk -F'[:,]' '
                /"samples_taken"/ { taken = $2 }
                /"samples_delivered"/ { delivered = $2 }
                /"samples_waiting"/ { waiting = $2 }
                /"cause"/ { cause = $2 }
                /"samples":/ && cause !~ /missed/ { lost += $2 }
                END {
                        print "taken", taken + 0, "delivered", delivered + 0, "lost", lost + 0, "waiting", waiting + 0
                        exit !(taken > 0 && delivered > 0 && taken == delivered + lost + waiting)
                }' /tmp/json
}

# split SECONDS: hot_three and hot_one of split31 share the samples of their process 3 : 1. The interval is missed by
# chance once in 10,000 times.
split() {
        profctl dump --for "$1s" --event samples --pid $work -o /tmp/split.folded || return 1
        awk '/;main;hot_three [0-9]+$/ { three += $NF } /;main;hot_one [0-9]+$/ { one += $NF } { all += $NF }
                END {
                        n = three + one
                        share = n ? three / n : 0
                        print all + 0, "samples,", n, "in the two functions under main,", share, "in hot_three"
                        # 3.89 standard deviations of sqrt(0.1875 / n), and 0.02 since a turn of the program is not a point;
                        # the rest of its time it reads the clock, which is slow here
                        off = share > 0.75 ? share - 0.75 : 0.75 - share
                        exit !(n >= 50 && n >= 0.3 * all && (off < 0.02 || (off - 0.02) ^ 2 < 3.89 ^ 2 * 0.1875 / n))
                }' /tmp/split.folded || { head -5 /tmp/split.folded; return 1; }
}

# named SECONDS: the functions of split31 have their names and callers.
named() {
        profctl dump --for "$1s" --event samples --pid $work -o /tmp/split.folded || return 1
        awk '/;main;hot_(three|one) [0-9]+$/ { n += $NF } /;main;/ { main += $NF } { all += $NF }
                END { print all + 0, "samples,", main, "under main,", n, "in its functions"; exit !(n >= 1 && main >= 0.8 * all) }' \
                /tmp/split.folded || { head -5 /tmp/split.folded; return 1; }
}

# until_named SECONDS: they have, in one of the next dumps. Names wait while profd is over its budget, as it is for minutes
# after it has started on a machine as slow as an emulated one.
until_named() {
        for _ in $(seq 20); do
                named "$1" >/tmp/named && { cat /tmp/named; return 0; }
        done
        cat /tmp/named
        return 1
}

# configure LINE...: the drop-in that the next start reads.
configure() {
        mkdir -p /etc/profd/profd.conf.d
        printf '%s\n' "$@" >/etc/profd/profd.conf.d/test.conf
}

# says WORDS: profctl doctor does; its exit status is 0.
says() {
        profctl doctor >/tmp/doctor 2>&1 || { cat /tmp/doctor; return 1; }
        grep -e "$1" /tmp/doctor | cut -c1-220 || { cat /tmp/doctor; return 1; }
}

not() {
        ! "$@"
}

start_work() {
        /t/split31 100000 >/tmp/work.out &
        work=$!
}

# until_says WORDS: profctl status does, within a few minutes.
until_says() {
        for _ in $(seq 180); do
                profctl status >/tmp/status 2>&1 && grep -e "$1" /tmp/status && return 0
                sleep 1
        done
        cat /tmp/status $log
        return 1
}

# Another profiler takes all counters, and lets go of them: profd is up, and goes on with the clock meanwhile.
held() {
        /t/hold_counters >/tmp/hold.out &
        holder=$!
        check counters-pinned until_says 'cycles as cpu-clock on 2 CPUs: another user holds the hardware counters'
        check counters-pinned-sampled named 15
        cat /tmp/hold.out
        kill $holder
        wait $holder
        check counters-unpinned until_says 'cycles on 2 CPUs'
        check counters-unpinned-sampled named 15
        check counters-pinned-accounts accounts
}
