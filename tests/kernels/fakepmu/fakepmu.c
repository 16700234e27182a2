// SPDX-License-Identifier: GPL-2.0
/* A PMU for guests that have none, for tests only: hardware cycles, instructions and cache-misses, driven by a timer.
 * The counts are made up; that events overflow in hard interrupt context, that perf adapts their period, and that
 * programs run on them, is real. The core reports an overflow through a function that modules do not get, so its
 * address is asked of a kprobe. */
#include <asm/irq_regs.h>
#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/perf_event.h>

#define SHORTEST_NS 100000

typedef int (*overflow_fn)(struct perf_event *, struct perf_sample_data *, struct pt_regs *);

static overflow_fn overflow;

/* Somebody else holds the counters: no event can be opened, as where x86 reserves them. */
static bool busy;
module_param(busy, bool, 0600);

/* How many events of a CPU can count at once. */
#define COUNTERS 4
static DEFINE_PER_CPU(unsigned int, used);

/* Events a microsecond. */
static u64 rate(const struct perf_event *event)
{
	switch (event->attr.config) {
	case PERF_COUNT_HW_CPU_CYCLES:
		return 3000;
	case PERF_COUNT_HW_INSTRUCTIONS:
		return 2000;
	default:
		return 10;
	}
}

static u64 interval_ns(const struct perf_event *event)
{
	u64 ns = event->attr.freq ? NSEC_PER_SEC / event->attr.sample_freq
				  : div64_u64(event->attr.sample_period * 1000, rate(event));

	return max_t(u64, ns, SHORTEST_NS);
}

static void fake_read(struct perf_event *event)
{
	u64 now = ktime_get_ns(), before = local64_xchg(&event->hw.prev_count, now);

	local64_add(div_u64((now - before) * rate(event), 1000), &event->count);
}

static enum hrtimer_restart fake_tick(struct hrtimer *timer)
{
	struct perf_event *event = container_of(timer, struct perf_event, hw.hrtimer);
	struct pt_regs *regs = get_irq_regs();
	struct perf_sample_data data;

	if (event->state != PERF_EVENT_STATE_ACTIVE)
		return HRTIMER_NORESTART;
	fake_read(event);
	perf_sample_data_init(&data, 0, event->hw.last_period);
	if (regs && overflow(event, &data, regs))
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ns_to_ktime(interval_ns(event)));
	return HRTIMER_RESTART;
}

static void fake_start(struct perf_event *event, int flags)
{
	u64 ns = interval_ns(event);

	event->hw.state = 0;
	local64_set(&event->hw.prev_count, ktime_get_ns());
	if (!is_sampling_event(event))
		return;
	if (event->hw.event_base) { /* the core stops and starts frequency events at each tick: keep the deadline */
		ns = event->hw.event_base;
		event->hw.event_base = 0;
	}
	hrtimer_start(&event->hw.hrtimer, ns_to_ktime(ns), HRTIMER_MODE_REL_PINNED_HARD);
}

static void fake_stop(struct perf_event *event, int flags)
{
	if (is_sampling_event(event)) {
		s64 left = ktime_to_ns(hrtimer_get_remaining(&event->hw.hrtimer));

		event->hw.event_base = left > 0 ? left : 1;
		hrtimer_cancel(&event->hw.hrtimer);
	}
	fake_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int fake_add(struct perf_event *event, int flags)
{
	if (this_cpu_read(used) >= COUNTERS)
		return -EAGAIN;
	this_cpu_inc(used);
	event->hw.state = PERF_HES_STOPPED;
	if (flags & PERF_EF_START)
		fake_start(event, 0);
	perf_event_update_userpage(event);
	return 0;
}

static void fake_del(struct perf_event *event, int flags)
{
	fake_stop(event, PERF_EF_UPDATE);
	this_cpu_dec(used);
}

static int fake_init(struct perf_event *event)
{
	if (event->attr.type != PERF_TYPE_HARDWARE)
		return -ENOENT;
	if (event->attr.config != PERF_COUNT_HW_CPU_CYCLES && event->attr.config != PERF_COUNT_HW_INSTRUCTIONS &&
	    event->attr.config != PERF_COUNT_HW_CACHE_MISSES)
		return -ENOENT;
	if (busy)
		return -EBUSY;
	hrtimer_init(&event->hw.hrtimer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	event->hw.hrtimer.function = fake_tick;
	if (event->attr.freq)
		event->hw.sample_period = max_t(u64, 1, div64_u64(rate(event) * 1000000, event->attr.sample_freq));
	event->hw.last_period = event->hw.sample_period;
	return 0;
}

static struct pmu fake = {
	.module = THIS_MODULE,
	.task_ctx_nr = perf_hw_context,
	.event_init = fake_init,
	.add = fake_add,
	.del = fake_del,
	.start = fake_start,
	.stop = fake_stop,
	.read = fake_read,
};

static int __init fakepmu_init(void)
{
	struct kprobe probe = { .symbol_name = "perf_event_overflow" };
	int r = register_kprobe(&probe);

	if (r)
		return r;
	overflow = (overflow_fn)probe.addr;
	unregister_kprobe(&probe);
	/* The slot that also answers for PERF_TYPE_HARDWARE. */
	return perf_pmu_register(&fake, "cpu", PERF_TYPE_RAW);
}

static void __exit fakepmu_exit(void)
{
	perf_pmu_unregister(&fake);
}

module_init(fakepmu_init);
module_exit(fakepmu_exit);
MODULE_DESCRIPTION("A PMU for tests");
MODULE_LICENSE("GPL");
