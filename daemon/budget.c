#include "daemon/budget.h"

#include "base/cleanup.h"

/* Of the rate asked: below a tenth a profile says too little to be worth its cost. */
#define LOWEST_SHARE    10
#define START_NS        (60 * NSEC_PER_SEC) /* of the limit: what a start may use at once */
#define BUCKET_NS       (10 * NSEC_PER_SEC) /* of the limit: what a storm may, half of it in names */
#define OVER_MOST       2                   /* intervals in a row */
#define CALM_NEEDED     3                   /* before the rate goes up, */
#define CALM_ROOM       2                   /* before it doubles, where that leaves half of the limit */
#define RAISE_ON_TRIAL  12                  /* intervals in which a raise can turn out a mistake */
#define HOLD_FIRST      12
#define HOLD_MOST       360
#define NAMING_SHARE    4   /* of the limit, kept for the worker, */
#define FOLLOWING_SHARE 2   /* and for following; */
#define FOLLOWING_MOST  0.9 /* with all others: it comes in bursts */
#define SMOOTH          12  /* intervals */

void budget_init(struct budget *b, uint32_t frequency, uint32_t limit_ppm)
{
        *b = (struct budget){.asked = frequency,
                             .frequency = frequency,
                             .limit_ppm = limit_ppm,
                             .since_raise = RAISE_ON_TRIAL,
                             .since_wait = RAISE_ON_TRIAL,
                             .hold = HOLD_FIRST};
}

static bool is_prime(uint32_t n)
{
        for (uint32_t i = 2; i * i <= n; i++)
                if (n % i == 0)
                        return false;
        return true;
}

/* A rate of which some ticks of the scheduler make a whole period would see the same moments of what goes by
 * those ticks, again and again; a prime drifts through them (as 99, 199 and 997 do). */
static uint32_t prime_at_most(uint32_t n)
{
        while (!is_prime(n))
                n--;
        return n;
}

static uint32_t prime_at_least(uint32_t n)
{
        while (!is_prime(n))
                n++;
        return n;
}

static uint32_t lowest(const struct budget *b)
{
        return MIN_OF(prime_at_least(MAX_OF(b->asked / LOWEST_SHARE, 1u)), b->asked);
}

static int64_t credit_after(int64_t credit, double allowed, double used, double most, double debt,
                            bool starting)
{
        double left = (double)credit - used;

        if (starting && left >= most)
                return (int64_t)left;
        return (int64_t)MIN_OF(MAX_OF(left, -debt) + allowed,
                               most); /* a debt is paid back, but not for ever */
}

/* What the worker leaves to the others of the limit. */
static double room(const struct budget *b)
{
        return b->limit_ppm - MIN_OF((double)b->naming_ppm, b->limit_ppm / (double)NAMING_SHARE);
}

/* What costs the same at any rate. */
static double fixed(const struct budget *b)
{
        return (double)b->following_ppm + b->serving_ppm;
}

static double expected_at(const struct budget *b, uint32_t frequency)
{
        return fixed(b) + (double)b->sampling_ppm * frequency / b->frequency;
}

/* The rate at which 80 % of the room would be used: what comes next is not less. What is fixed is there at
 * any rate. */
static uint32_t fitting(const struct budget *b)
{
        double aim = MAX_OF(room(b) * 0.8 - fixed(b), 0.0);

        return (uint32_t)MIN_OF(b->frequency * aim / MAX_OF(b->sampling_ppm, 1u), (double)b->asked);
}

static uint32_t lower(struct budget *b)
{
        uint32_t fits = MIN_OF(fitting(b), b->frequency);

        if (b->since_raise < RAISE_ON_TRIAL) { /* the raise was the mistake: back, and not again soon */
                b->hold_left = b->hold;
                b->hold = MIN_OF(2 * b->hold, (uint32_t)HOLD_MOST);
                fits = MIN_OF(fits, b->raised_from);
                b->since_raise = RAISE_ON_TRIAL;
        }
        b->calm = b->over = 0;
        return b->frequency = MAX_OF(prime_at_most(fits), lowest(b));
}

static uint32_t raise(struct budget *b)
{
        uint32_t twice = MIN_OF(prime_at_least(2 * b->frequency), b->asked);
        uint32_t step = MIN_OF(prime_at_least(b->frequency + b->frequency / 4 + 1), b->asked);
        bool quiet = expected_at(b, twice) * 2 <= room(b);

        if (b->since_wait < RAISE_ON_TRIAL || step == b->frequency || expected_at(b, step) > room(b) * 0.9 ||
            (b->hold_left > 0 && !quiet)) {
                b->calm = 0;
                return b->frequency;
        }
        if (++b->calm < (quiet ? CALM_ROOM : CALM_NEEDED))
                return b->frequency;
        b->calm = b->since_raise = 0;
        b->raised_from = b->frequency;
        uint32_t fits = fitting(b);
        return b->frequency = fits >= twice ? twice : MAX_OF(step, prime_at_most(fits));
}

uint32_t budget_update(struct budget *b, const struct budget_use *use, uint64_t elapsed_ns, uint32_t n_cpus)
{
        if (elapsed_ns == 0 || n_cpus == 0)
                return b->frequency;
        double capacity = (double)elapsed_ns * n_cpus, allowed = (double)n_cpus * b->limit_ppm / 1e6;
        double per_ppm = 1e6 / capacity;
        double serving_ppm = b->serving_ppm + ((double)use->serving_ns * per_ppm - b->serving_ppm) / SMOOTH;
        double others = (double)use->sampling_ns + (double)use->following_ns + serving_ppm / per_ppm;
        double total = others + (double)use->naming_ns;

        uint32_t previous_ppm = b->used_ppm;
        b->used_ppm = (uint32_t)(total * per_ppm);
        b->sampling_ppm = (uint32_t)((double)use->sampling_ns * per_ppm);
        b->following_ppm = (uint32_t)((double)use->following_ns * per_ppm);
        b->naming_ppm = (uint32_t)((double)use->naming_ns * per_ppm);
        b->serving_ppm = (uint32_t)serving_ppm;

        double given = allowed * (double)elapsed_ns, most = allowed * (double)BUCKET_NS;
        if (!b->started)
                b->credit_ns = b->naming_credit_ns = b->following_credit_ns =
                                (int64_t)(allowed * (double)START_NS);
        b->started = true;
        b->bucket_ns = (int64_t)most;
        bool starting = b->age_ns < START_NS;
        bool bears = starting && (double)b->credit_ns - total >= most;
        bool empty = (double)b->credit_ns < total; /* or in debt */
        b->credit_ns = credit_after(b->credit_ns, given, total, most, most, starting);
        b->naming_credit_ns = credit_after(b->naming_credit_ns, MAX_OF(given - others, given / NAMING_SHARE),
                                           (double)use->naming_ns, most / 2, most, starting);
        b->names_wait = b->naming_credit_ns <= 0;
        double rest = others - (double)use->following_ns +
                      MIN_OF((double)use->naming_ns, given / NAMING_SHARE);
        b->following_credit_ns = credit_after(b->following_credit_ns,
                                              MAX_OF(given * FOLLOWING_MOST - rest, given / FOLLOWING_SHARE),
                                              (double)use->following_ns, most, most, starting);
        b->age_ns += elapsed_ns;

        if (b->since_raise < RAISE_ON_TRIAL && ++b->since_raise == RAISE_ON_TRIAL)
                b->hold = HOLD_FIRST; /* it has stood the trial */
        if (b->hold_left > 0)
                b->hold_left--;
        b->since_wait = b->following_waits ? 0 : b->since_wait + 1;
        bool over = b->used_ppm > b->limit_ppm;
        b->over = over ? b->over + 1 : 0;
        b->over_ns += b->used_ppm + previous_ppm > 2 * b->limit_ppm ? elapsed_ns : 0;
        if (!over)
                b->exceeded = false;
        if (over && !bears && (empty || b->over >= OVER_MOST)) {
                b->exceeded = b->frequency == lowest(b) && others * per_ppm > b->limit_ppm;
                /* Where the others have room the worker is the cause, and waits. */
                if (others * per_ppm > room(b))
                        return lower(b);
        }
        if (over) {
                b->calm = 0;
                return b->frequency;
        }
        return raise(b);
}

bool budget_names_wait(struct budget *b, uint64_t naming_ns)
{
        if (b->started)
                b->names_wait = b->naming_credit_ns <= (int64_t)naming_ns;
        return b->names_wait;
}

bool budget_following_waits(struct budget *b, uint64_t following_ns)
{
        int64_t left = b->following_credit_ns - (int64_t)following_ns;

        if (b->started)
                b->following_waits = left <= (b->following_waits ? b->bucket_ns / 4 : 0);
        return b->following_waits;
}

const char *budget_why(const struct budget *b)
{
        if (b->frequency >= b->asked)
                return NULL;
        if (b->serving_ppm > MAX_OF(b->sampling_ppm, b->following_ppm))
                return "lowered to keep to Cpu=: queries and the store take most of it";
        return b->following_ppm > b->sampling_ppm
                               ? "lowered to keep to Cpu=: following processes that start and end takes "
                                 "most of it"
                               : "lowered to keep to Cpu=: sampling at the rate asked takes more";
}
