/* Time of the walk in the kernel: ns a frame, hot, on a chain of N frames in a world like a real process:
 * 60 mappings, the frames spread over pages of 100 rows each. The kernel's own frame-pointer walk of a stack
 * of the same depth beside it (bpf_get_stack).
 *
 *   walk_bench [FRAMES [ROUNDS]] */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/bpf/walk_fixture.h"

#define CODE     0x555500000000ull
#define MAPPINGS 60
#define ROWS     100
#define REPEAT   99
#define FRAME    48 /* bytes of stack a frame */

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

static double median(double *v, int n)
{
        qsort(v, (size_t)n, sizeof(*v), by_value);
        return v[n / 2];
}

static void make_world(struct walk_fixture *f, uint64_t *stack, uint32_t frames, bool remember)
{
        memset(f->probe, 0, sizeof(*f->probe));
        for (uint32_t i = 0; i < MAPPINGS; i++)
                f->mappings[i] = (struct abi_mapping){CODE + i * 0x100000ull,
                                                      CODE + i * 0x100000ull + 0x40000,
                                                      CODE + i * 0x100000ull,
                                                      i * 64,
                                                      64,
                                                      0,
                                                      (uint16_t)(i + 1),
                                                      0};
        f->probe->n_mappings = MAPPINGS;
        f->probe->version = remember;
        for (uint32_t i = 0; i < 64; i++)
                f->rules[10 + i] = (struct unwind_rule){UNWIND_SP, 0, 0, FRAME};
        for (uint32_t p = 0; p < MAPPINGS * 64; p++) {
                uint32_t first = p * ROWS % (ABI_SHARD_ROWS - ROWS);
                for (uint32_t i = 0; i < ROWS; i++)
                        f->shard[0][first + i] = UNWIND_ROW(i * 40, 10 + (i + p) % 64);
                f->pages[p] = ABI_PAGE(0, first, ROWS);
        }
        srand(1);
        for (uint32_t i = 0; i < frames; i++) {
                /* runs of a few frames in one object, as in real chains */
                uint64_t object = i / 4 * 7 % MAPPINGS;
                stack[(i + 1) * FRAME / 8 - 1] =
                                CODE + object * 0x100000 + (uint64_t)(rand() % 0x3f000) + 64;
        }
        stack[frames * FRAME / 8 - 1] = 0; /* and a frame pointer of 0: the outermost */
        f->probe->registers.ip = CODE + 0x1234;
        f->probe->registers.sp = (uintptr_t)stack;
        f->probe->repeat = REPEAT;
}

int main(int argc, char **argv)
{
        uint32_t frames = argc > 1 ? (uint32_t)atoi(argv[1]) : 30;
        int rounds = argc > 2 ? atoi(argv[2]) : 101;
        double *ns = calloc((size_t)rounds, sizeof(*ns));
        uint64_t *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        struct walk_fixture f;
        static struct walk_result r;

        if (!ns || stack == MAP_FAILED || frames < 1 || frames > 500 || rounds < 1 ||
            walk_fixture_new(&f, false) < 0) {
                fprintf(stderr, "walk_bench: needs root and BPF\n");
                return 1;
        }
        for (int remember = 0; remember < 2; remember++) {
                make_world(&f, stack, frames, remember);
                for (int i = 0; i < rounds; i++) {
                        if (walk_kernel(&f, &r) < 0)
                                return 1;
                        ns[i] = (double)f.probe->ns / (REPEAT + 1) / r.walked;
                }
                printf("%s: %u frames, end %u, %.1f ns a frame, %.2f us a walk (median of %d)\n",
                       remember ? "remembered" : "tables", r.walked, r.walk, median(ns, rounds),
                       median(ns, rounds) * r.walked / 1000, rounds);
        }
        for (int i = 0; i < rounds; i++)
                ns[i] = walk_frame_pointers(&f, frames, REPEAT) / frames;
        printf("frame pointers by the kernel: %u frames, %.1f ns a frame, %.2f us a walk\n",
               f.probe->fp_frames, median(ns, rounds), median(ns, rounds) * frames / 1000);
        walk_fixture_free(&f);
        return 0;
}
