/* mutate [-n COUNT] [-s SEED] [-m MAX] FILE|DIRECTORY...: calls the fuzz target it is linked with for each
 * file as it is, then COUNT times for a mutant of one. Needs no libFuzzer and is deterministic: mutant i
 * depends on the seed, i and the files alone.
 *
 * The target runs in a child. When that dies, or runs longer than ten seconds at one input, the input is
 * written to mutate-crash.bin and named with the arguments that make it again; exit status 1. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/io.h"
#include "tests/fuzz/fuzz.h"

#define MAX_SEED_FILES 512
#define MAX_SEED_BYTES (1u << 20)
#define INPUT_SECONDS  10

struct seeds {
        struct buf file[MAX_SEED_FILES];
        char *name[MAX_SEED_FILES];
        uint32_t n;
};

static uint64_t next(uint64_t *state)
{
        return hash_u64(*state += 0x9e3779b97f4a7c15ull, 0x2545f4914f6cdd1dull);
}

static uint32_t below(uint64_t *state, size_t n)
{
        return n ? (uint32_t)(next(state) % n) : 0;
}

static void replace(struct buf *b, size_t at, size_t remove, const void *data, size_t n)
{
        struct buf out = {0};

        buf_add(&out, b->data, at);
        buf_add(&out, data, n);
        buf_add(&out, b->data + at + remove, b->len - at - remove);
        buf_free(b);
        *b = out;
}

/* One of the changes that fuzzers make: bits, bytes, integers at their limits, pieces moved, cut or foreign.
 */
static void mutate_once(struct buf *b, const struct buf *other, uint64_t *rng, size_t max)
{
        static const uint64_t limits[] = {0,
                                          1,
                                          2,
                                          4,
                                          8,
                                          16,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fff,
                                          0x8000,
                                          0xffff,
                                          0x7fffffff,
                                          0x80000000,
                                          0xfffffffe,
                                          0xffffffff,
                                          0x7fffffffffffffff,
                                          0x8000000000000000,
                                          0xffffffffffffffff};
        size_t at = below(rng, b->len), n = 1 + below(rng, MIN_OF(b->len - at, (size_t)64));
        uint64_t v;

        if (!b->len)
                return buf_addc(b, (char)next(rng));
        switch (below(rng, 8)) {
        case 0:
                b->data[at] ^= (char)(1u << below(rng, 8));
                break;
        case 1:
                b->data[at] = (char)next(rng);
                break;
        case 2:
                b->data[at] = (char)(b->data[at] + (int)below(rng, 9) - 4);
                break;
        case 3:
                v = limits[below(rng, ARRAY_SIZE(limits))];
                n = (size_t)1 << below(rng, 4); /* a byte to eight */
                memcpy(b->data + at, &v, MIN_OF(n, b->len - at));
                break;
        case 4: /* cut */
                replace(b, at, MIN_OF(n, b->len - at), NULL, 0);
                break;
        case 5: /* double */
                if (b->len + n <= max) {
                        char piece[64];

                        n = MIN_OF(n, b->len - at);
                        memcpy(piece, b->data + at, n);
                        replace(b, at, 0, piece, n);
                }
                break;
        case 6: /* a piece of another file */
                if (other->len) {
                        size_t from = below(rng, other->len);

                        n = MIN_OF(n, other->len - from);
                        if (b->len + n <= max)
                                replace(b, at, below(rng, 2) ? 0 : MIN_OF(n, b->len - at),
                                        other->data + from, n);
                }
                break;
        default:
                if (below(rng, 16) == 0)
                        replace(b, at, b->len - at, NULL, 0); /* end here */
                else
                        memset(b->data + at, (int)below(rng, 2) * 0xff, MIN_OF(n, b->len - at));
                break;
        }
}

/* Input i: the files first, then mutants. */
static void make_input(const struct seeds *s, uint64_t seed, uint64_t i, size_t max, struct buf *ret)
{
        uint64_t rng = hash_u64(seed, i);
        const struct buf *from;
        uint32_t changes;

        buf_clear(ret);
        if (i < s->n) {
                buf_add(ret, s->file[i].data, s->file[i].len);
                return;
        }
        from = &s->file[below(&rng, s->n)];
        buf_add(ret, from->data, from->len);
        changes = 1u << below(&rng, 5);
        while (changes--)
                mutate_once(ret, &s->file[below(&rng, s->n)], &rng, max);
}

static int add_seed(struct seeds *s, const char *path)
{
        struct stat st;

        if (stat(path, &st) < 0) {
                fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
                return -errno;
        }
        if (S_ISDIR(st.st_mode)) {
                struct dirent **entry;
                int n = scandir(path, &entry, NULL, alphasort), k = 0;

                for (int i = 0; i < n; i++) {
                        char inner[PATH_MAX];

                        if (entry[i]->d_name[0] != '.' && k >= 0 &&
                            snprintf(inner, sizeof(inner), "%s/%s", path, entry[i]->d_name) <
                                            (int)sizeof(inner))
                                k = add_seed(s, inner);
                        free(entry[i]);
                }
                if (n >= 0)
                        free(entry);
                return k;
        }
        if (s->n == MAX_SEED_FILES)
                return -E2BIG;
        s->name[s->n] = strdup(path);
        return read_file(path, MAX_SEED_BYTES, &s->file[s->n++]);
}

/* Runs the inputs from *at on in a child, which says in *at how far it has come. */
static bool run(const struct seeds *s, uint64_t seed, volatile uint64_t *at, uint64_t end, size_t max)
{
        pid_t pid;
        int status;

        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                struct buf input = {0};

                for (; *at < end; ++*at) {
                        alarm(INPUT_SECONDS);
                        make_input(s, seed, *at, max, &input);
                        {
                                /* Exactly as long as the input, so that a byte behind it is noticed. */
                                uint8_t *copy = malloc(MAX_OF(input.len, (size_t)1));

                                memcpy(copy, buf_text(&input), input.len);
                                LLVMFuzzerTestOneInput(copy, input.len);
                                free(copy);
                        }
                }
                buf_free(&input);
                exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid) {
                perror("cannot run the target");
                exit(2);
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return true;
        if (WIFSIGNALED(status))
                fprintf(stderr, "killed by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
                fprintf(stderr, "exit status %d\n", WEXITSTATUS(status));
        return false;
}

int main(int argc, char **argv)
{
        static struct seeds s;
        uint64_t count = 1000, seed = 1;
        size_t max = 1 << 16;
        volatile uint64_t *at;
        bool good = true;
        int option;

        while ((option = getopt(argc, argv, "n:s:m:")) != -1)
                switch (option) {
                case 'n':
                        count = strtoull(optarg, NULL, 10);
                        break;
                case 's':
                        seed = strtoull(optarg, NULL, 10);
                        break;
                case 'm':
                        max = strtoull(optarg, NULL, 10);
                        break;
                default:
                        fprintf(stderr, "usage: %s [-n COUNT] [-s SEED] [-m MAX] FILE|DIRECTORY...\n",
                                argv[0]);
                        return 2;
                }
        for (int i = optind; i < argc; i++)
                if (add_seed(&s, argv[i]) < 0)
                        return 2;
        if (!s.n) {
                fprintf(stderr, "no files to start from\n");
                return 2;
        }
        at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
                return 2;
        *at = 0;
        while (good && *at < s.n + count) {
                _cleanup_buf_ struct buf input = {0};
                _cleanup_close_ int fd = -1;

                if (run(&s, seed, at, s.n + count, max))
                        break;
                good = false;
                make_input(&s, seed, *at, max, &input);
                fprintf(stderr, "input %" PRIu64 " of -s %" PRIu64 "%s%s, %zu bytes, in mutate-crash.bin\n",
                        *at, seed, *at < s.n ? ": " : "", *at < s.n ? s.name[*at] : "", input.len);
                fd = open("mutate-crash.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
                if (fd < 0 || write_all(fd, input.data, input.len) < 0)
                        perror("cannot write mutate-crash.bin");
        }
        printf("%u files, %" PRIu64 " mutants: %s\n", s.n, count, good ? "fine" : "FAILED");
        for (uint32_t i = 0; i < s.n; i++) {
                buf_free(&s.file[i]);
                free(s.name[i]);
        }
        return good ? 0 : 1;
}
