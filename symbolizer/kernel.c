/* /proc/kallsyms has no sizes: a symbol ends where the next begins, wherever that is. Symbols that only mark
 * a place (_etext) and the padding in front of functions (__pfx_..., since 6.1 about half of all lines) name
 * nothing, but end what is before them.
 *
 * The file takes the kernel some 50 ms to write, so it is read again only when the modules or the BPF
 * programs have become others. */
#include "symbolizer/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/io.h"
#include "symbolizer/elf_image.h"

#define READ_CHUNK   ((size_t)256 << 10)
#define MAX_SYMBOLS  (4u << 20)
#define MAX_MODULES  4096
#define MAX_PROGRAMS 16384
#define NO_NAME      UINT32_MAX

/* No function of a kernel is as long; addresses behind the last symbol of a module stay without a name. */
#define MAX_FUNCTION (1u << 20)

struct entry {
        uint64_t start;
        uint32_t name;   /* offset in `names`, or NO_NAME */
        uint32_t module; /* index */
};

struct kernel_symbols {
        struct entry *entry;
        uint32_t n, cap;
        struct buf names;
        char *module[MAX_MODULES];
        uint32_t n_modules;
        uint64_t state; /* of modules and BPF programs at the last reading */
};

/* -- what may change -- */

/* The kernel's list of BPF programs, by id: ids only grow. */
static uint64_t hash_programs(uint64_t hash)
{
        union bpf_attr attr = {};

        for (uint32_t i = 0; i < MAX_PROGRAMS; i++) {
                if (syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, &attr, sizeof(attr)) < 0)
                        return hash;
                hash = hash_u64(hash, attr.next_id);
                attr = (union bpf_attr){.start_id = attr.next_id};
        }
        return hash;
}

/* A line of /proc/modules: name, size, reference count, users, state, address. The counts change all the
 * time. */
static uint64_t hash_modules(uint64_t hash)
{
        _cleanup_buf_ struct buf b = {};

        if (read_file("/proc/modules", READ_CHUNK * 4, &b) < 0)
                return hash;
        for (const char *line = buf_text(&b); *line;) {
                const char *end = strchrnul(line, '\n'), *space = memchr(line, ' ', (size_t)(end - line));
                const char *address = space;

                for (int i = 0; i < 4 && address; i++)
                        address = memchr(address + 1, ' ', (size_t)(end - address - 1));
                if (space && address)
                        hash = hash_u64(hash_bytes(line, (size_t)(space - line)),
                                        hash ^ hash_bytes(address,
                                                          MIN_OF((size_t)(end - address), (size_t)19)));
                line = *end ? end + 1 : end;
        }
        return hash;
}

static uint64_t state_now(void)
{
        return hash_programs(hash_modules(1));
}

/* -- reading -- */

static int module_index(struct kernel_symbols *k, const char *name, size_t n, uint32_t *ret)
{
        /* All symbols of a module stand together. */
        for (uint32_t i = k->n_modules; i-- > 0;)
                if (strncmp(k->module[i], name, n) == 0 && k->module[i][n] == 0) {
                        *ret = i;
                        return 0;
                }
        if (k->n_modules == MAX_MODULES)
                return -E2BIG;
        k->module[k->n_modules] = strndup(name, n);
        if (!k->module[k->n_modules])
                return -ENOMEM;
        *ret = k->n_modules++;
        return 0;
}

static bool is_mark(const char *name, size_t n)
{
        static const char *const mark[] = {"_etext", "_einittext", "__init_end", "_end", "__end_rodata"};

        if (n > 6 && memcmp(name, "__pfx_", 6) == 0)
                return true;
        for (size_t i = 0; i < ARRAY_SIZE(mark); i++)
                if (strlen(mark[i]) == n && memcmp(mark[i], name, n) == 0)
                        return true;
        return false;
}

static int add_symbol(struct kernel_symbols *k, uint64_t start, char type, const char *name, size_t n,
                      uint32_t module)
{
        uint32_t offset = NO_NAME;

        if (k->n == MAX_SYMBOLS)
                return -E2BIG;
        if (k->n == k->cap) {
                uint32_t cap = k->cap ? 2 * k->cap : 65536;
                struct entry *e = reallocarray(k->entry, cap, sizeof(*e));

                if (!e)
                        return -ENOMEM;
                k->entry = e;
                k->cap = cap;
        }
        if ((type == 't' || type == 'T' || type == 'w' || type == 'W') && !is_mark(name, n)) {
                offset = (uint32_t)k->names.len;
                buf_add(&k->names, name, n);
                buf_addc(&k->names, 0);
        } else if (k->n > 0 && k->entry[k->n - 1].name == NO_NAME && k->entry[k->n - 1].start <= start) {
                return 0; /* one end is enough */
        }
        k->entry[k->n++] = (struct entry){start, offset, module};
        return buf_error(&k->names);
}

/* "ffffffff81000000 T _stext", with "\t[module]" behind it for a module's. Returns 1 when it has an address,
 * 0 when that is hidden, which is shown as zero. */
static int read_line(struct kernel_symbols *k, const char *line, const char *end)
{
        uint64_t address = 0;
        const char *p = line, *name, *name_end;
        uint32_t module = 0;
        int r;

        for (; p < end && *p != ' '; p++) {
                int c = *p, digit = c >= '0' && c <= '9'   ? c - '0'
                                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                           : -1;

                if (digit < 0)
                        return -EBADMSG;
                address = address << 4 | (uint64_t)digit;
        }
        if (end - p < 4)
                return -EBADMSG;
        name = p + 3;
        name_end = memchr(name, '\t', (size_t)(end - name));
        if (name_end) {
                r = module_index(k, name_end + 1, (size_t)(end - name_end - 1), &module);
                if (r < 0)
                        return r;
        } else {
                name_end = end;
        }
        if (address == 0)
                return 0;
        r = add_symbol(k, address, p[1], name, (size_t)(name_end - name), module);
        return r < 0 ? r : 1;
}

static int compare_entries(const void *a, const void *b)
{
        const struct entry *x = a, *y = b;

        if (x->start != y->start)
                return x->start < y->start ? -1 : 1;
        /* Of aliases the first with a name in the file's order, which the names' offsets keep. */
        return x->name < y->name ? -1 : x->name > y->name;
}

static int better_alias(const struct kernel_symbols *k, const struct entry *a, const struct entry *b)
{
        const char *x = k->names.data + a->name, *y = k->names.data + b->name;

        return strspn(x, "_") < strspn(y, "_");
}

static void sort_and_choose(struct kernel_symbols *k)
{
        uint32_t kept = 0;

        qsort(k->entry, k->n, sizeof(*k->entry), compare_entries);
        for (uint32_t i = 0; i < k->n; i++) {
                struct entry *last = kept > 0 ? &k->entry[kept - 1] : NULL;

                if (last && last->start == k->entry[i].start) {
                        if (k->entry[i].name != NO_NAME &&
                            (last->name == NO_NAME || better_alias(k, &k->entry[i], last)))
                                *last = k->entry[i];
                        continue;
                }
                k->entry[kept++] = k->entry[i];
        }
        k->n = kept;

        struct entry *e = realloc(k->entry, ((size_t)kept + 1) * sizeof(*e));

        if (e) {
                k->entry = e;
                k->cap = kept;
        }
}

static int read_kallsyms(struct kernel_symbols *k)
{
        _cleanup_close_ int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *chunk = malloc(READ_CHUNK);
        size_t have = 0;
        bool any = false;

        if (fd < 0)
                return -errno;
        if (!chunk)
                return -ENOMEM;
        for (;;) {
                ssize_t got = read(fd, chunk + have, READ_CHUNK - have);
                char *line = chunk, *end;

                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                if (got == 0)
                        break;
                have += (size_t)got;
                while ((end = memchr(line, '\n', have - (size_t)(line - chunk)))) {
                        int r = read_line(k, line, end);

                        if (r < 0 && r != -EBADMSG)
                                return r;
                        any |= r > 0;
                        line = end + 1;
                }
                have -= (size_t)(line - chunk);
                memmove(chunk, line, have);
                if (have == READ_CHUNK)
                        return -EBADMSG;
        }
        return any ? 0 : -EPERM;
}

DEFINE_CLEANUP(struct kernel_symbols, kernel_symbols_free);

int kernel_symbols_new(struct kernel_symbols **ret)
{
        _cleanup_(kernel_symbols_free_cleanup) struct kernel_symbols *k = calloc(1, sizeof(*k));
        uint32_t kernel;
        int r;

        if (!k)
                return -ENOMEM;
        r = module_index(k, "[kernel.kallsyms]", strlen("[kernel.kallsyms]"), &kernel);
        if (r < 0)
                return r;
        k->state = state_now();
        r = read_kallsyms(k);
        if (r < 0)
                return r;
        sort_and_choose(k);
        *ret = TAKE_PTR(k);
        return 0;
}

struct kernel_symbols *kernel_symbols_free(struct kernel_symbols *k)
{
        if (!k)
                return NULL;
        for (uint32_t i = 0; i < k->n_modules; i++)
                free(k->module[i]);
        buf_free(&k->names);
        free(k->entry);
        free(k);
        return NULL;
}

int kernel_symbols_refresh(struct kernel_symbols *k)
{
        struct kernel_symbols *fresh, old;
        int r;

        if (state_now() == k->state)
                return 0;
        r = kernel_symbols_new(&fresh);
        if (r < 0)
                return r;
        old = *k;
        *k = *fresh;
        *fresh = old;
        kernel_symbols_free(fresh);
        return 1;
}

bool kernel_symbols_find(const struct kernel_symbols *k, uint64_t address, struct kernel_symbol *ret)
{
        uint32_t low = 0, high = k->n;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (k->entry[middle].start <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (low == 0)
                return false;

        const struct entry *e = &k->entry[low - 1];

        if (e->name == NO_NAME || address - e->start >= MAX_FUNCTION)
                return false;
        *ret = (struct kernel_symbol){
                        .name = k->names.data + e->name,
                        .module = k->module[e->module],
                        .start = e->start,
                        .offset = address - e->start,
        };
        return true;
}

bool kernel_symbols_find_name(const struct kernel_symbols *k, const char *name, uint64_t *ret)
{
        for (uint32_t i = 0; i < k->n; i++)
                if (k->entry[i].name != NO_NAME && strcmp(k->names.data + k->entry[i].name, name) == 0) {
                        *ret = k->entry[i].start;
                        return true;
                }
        return false;
}

uint32_t kernel_build_id(uint8_t *ret, uint32_t max)
{
        _cleanup_buf_ struct buf b = {};

        if (read_file("/sys/kernel/notes", 65536, &b) < 0)
                return 0;
        return elf_notes_build_id((struct span){(const uint8_t *)b.data, b.len}, 4, ret, max);
}
