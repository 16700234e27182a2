/* A load whose every stack two ways of walking find whole and equal: no C library, frame pointers all
 * through, and call frame information too. 32 calls deep; by which of 64 ways changes each few microseconds.
 *
 *   frames hot      works in registers: what a profiler touches stays in the caches
 *   frames cold     works through 32 MiB: it does not, as on a busy host
 *
 * Runs until it is killed. */
#include <stdint.h>

#define COLD_BYTES (32u << 20)
#define LINE       64
#define PATH_BITS  6
#define PLACED     __attribute__((noinline, aligned(1024)))

static volatile unsigned char memory[COLD_BYTES];
static uint32_t position, step; /* step 0: hot */

static PLACED uint64_t leaf(uint64_t path)
{
        uint64_t v = path;

        for (int i = 0; i < 400; i++) {
                v = v * 6364136223846793005ull + 1442695040888963407ull;
                if (step) {
                        memory[position]++;
                        position = (position + step) % COLD_BYTES;
                }
        }
        return v;
}

/* Each level has two functions of different frames; the path's bits say which. */
#define LEVEL(n, next_a, next_b)                                                          \
        static PLACED uint64_t a##n(uint64_t path)                                        \
        {                                                                                 \
                volatile uint64_t local[2 + n % 5];                                       \
                local[0] = path >> n % PATH_BITS & 1 ? next_a(path) : next_b(path);       \
                return local[0] + 1;                                                      \
        }                                                                                 \
        static PLACED uint64_t b##n(uint64_t path)                                        \
        {                                                                                 \
                volatile uint64_t local[1 + n % 7];                                       \
                local[0] = path >> (n + 1) % PATH_BITS & 1 ? next_b(path) : next_a(path); \
                return local[0] + 2;                                                      \
        }

LEVEL(0, leaf, leaf)
LEVEL(1, a0, b0)
LEVEL(2, a1, b1)
LEVEL(3, a2, b2)
LEVEL(4, a3, b3)
LEVEL(5, a4, b4)
LEVEL(6, a5, b5)
LEVEL(7, a6, b6)
LEVEL(8, a7, b7)
LEVEL(9, a8, b8)
LEVEL(10, a9, b9)
LEVEL(11, a10, b10)
LEVEL(12, a11, b11)
LEVEL(13, a12, b12)
LEVEL(14, a13, b13)
LEVEL(15, a14, b14)
LEVEL(16, a15, b15)
LEVEL(17, a16, b16)
LEVEL(18, a17, b17)
LEVEL(19, a18, b18)
LEVEL(20, a19, b19)
LEVEL(21, a20, b20)
LEVEL(22, a21, b21)
LEVEL(23, a22, b22)
LEVEL(24, a23, b23)
LEVEL(25, a24, b24)
LEVEL(26, a25, b25)
LEVEL(27, a26, b26)
LEVEL(28, a27, b27)

/* stack: as the kernel leaves it to a new program: argc, argv[], ... */
__attribute__((noreturn, noinline, used)) static void run(const uint64_t *stack)
{
        const char *how = stack[0] > 1 ? (const char *)stack[2] : "";
        uint64_t path = 1;

        step = how[0] == 'c' ? LINE * 3 : 0;
        for (;;)
                path = path * 6364136223846793005ull + (path & 1 ? a28(path >> 58) : b28(path >> 58)) % 2;
}

/* The outermost frame, which says so to both: a frame pointer of zero, a return address that is undefined.
 */
#if defined(__x86_64__)
__asm__(".globl _start\n"
        "_start: .cfi_startproc\n"
        ".cfi_undefined rip\n"
        "xor %ebp, %ebp\n"
        "mov %rsp, %rdi\n"
        "call run\n"
        ".cfi_endproc\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n"
        "_start: .cfi_startproc\n"
        ".cfi_undefined x30\n"
        "mov x29, #0\n"
        "mov x30, #0\n"
        "mov x0, sp\n"
        "bl run\n"
        ".cfi_endproc\n");
#endif
