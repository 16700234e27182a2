#include "symbolizer/jit_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "symbolizer/code_map.h"

#define READ_CHUNK ((size_t)1 << 20)
#define MAX_TEXT   ((size_t)128 << 20) /* bytes of names */
#define MAX_LINES  (8u << 20)
#define MAX_RECORD (64u << 20)
#define MAX_LINE   ((size_t)64 << 10) /* of a map: longer ones are no names */
#define NO_LINES   UINT32_MAX

/* jitdump */
#define DUMP_MAGIC      0x4A695444u /* "JiTD", in the writer's byte order */
#define DUMP_CODE_LOAD  0u
#define DUMP_CODE_MOVE  1u
#define DUMP_DEBUG_INFO 2u

struct dump_header {
        uint32_t magic, version, total_size, elf_mach, pad, pid;
        uint64_t timestamp, flags;
};

struct dump_record {
        uint32_t id, total_size;
        uint64_t timestamp;
};

struct dump_load {
        uint32_t pid, tid;
        uint64_t vma, code_addr, code_size, code_index;
};

struct dump_move {
        uint32_t pid, tid;
        uint64_t vma, old_code_addr, new_code_addr, code_size, code_index;
};

struct dump_debug {
        uint64_t code_addr, n_entries;
};

struct line {
        uint64_t address;
        uint32_t file; /* text */
        uint32_t line;
};

struct line_run { /* of one piece of code */
        uint32_t first, n;
};

struct jit_file {
        int fd;
        enum wire_jit_kind kind;
        uint32_t pid;
        uint64_t offset; /* read and understood up to here */
        struct code_map map;
        struct buf text; /* names, each with its NUL */
        struct line *line;
        uint32_t n_lines, cap_lines;
        struct line_run *run;
        uint32_t n_runs, cap_runs;
        uint32_t pending_run; /* debug information comes before its code */
        uint64_t pending_address;
};

static void forget(struct jit_file *j)
{
        code_map_free(&j->map);
        buf_free(&j->text);
        free(j->line);
        free(j->run);
        j->line = NULL;
        j->run = NULL;
        j->n_lines = j->cap_lines = j->n_runs = j->cap_runs = 0;
        j->pending_run = NO_LINES;
        j->offset = 0;
}

int jit_file_open(int fd, enum wire_jit_kind kind, uint32_t pid, struct jit_file **ret)
{
        struct jit_file *j;

        if (kind != WIRE_JIT_MAP && kind != WIRE_JIT_DUMP) {
                close(fd);
                return -EINVAL;
        }
        j = calloc(1, sizeof(*j));
        if (!j) {
                close(fd);
                return -ENOMEM;
        }
        j->fd = fd;
        j->kind = kind;
        j->pid = pid;
        j->pending_run = NO_LINES;
        *ret = j;
        return 0;
}

struct jit_file *jit_file_free(struct jit_file *j)
{
        if (!j)
                return NULL;
        forget(j);
        close(j->fd);
        free(j);
        return NULL;
}

static int add_text(struct jit_file *j, const char *s, size_t n, uint32_t *ret)
{
        if (j->text.len + n + 1 > MAX_TEXT)
                return -E2BIG;
        *ret = (uint32_t)j->text.len;
        buf_add(&j->text, s, n);
        buf_addc(&j->text, 0);
        return buf_error(&j->text);
}

static int add_code(struct jit_file *j, uint64_t start, uint64_t size, const char *name, size_t n,
                    uint32_t lines)
{
        struct code_entry e = {.start = start, .end = start + size, .lines = lines};
        int r;

        if (size == 0 || e.end < start)
                return 0;
        r = add_text(j, name, n, &e.name);
        return r < 0 ? r : code_map_add(&j->map, &e);
}

/* -- perf map -- */

static const char *read_hex(const char *p, const char *end, uint64_t *ret)
{
        uint64_t v = 0;
        const char *start;

        if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
                p += 2;
        for (start = p; p < end && p - start <= 16; p++) {
                int c = *p, digit = c >= '0' && c <= '9'   ? c - '0'
                                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                           : -1;

                if (digit < 0)
                        break;
                v = v << 4 | (uint64_t)digit;
        }
        *ret = v;
        return p == start || p - start > 16 ? NULL : p;
}

static int read_map_line(struct jit_file *j, const char *p, const char *end)
{
        uint64_t start, size;

        p = read_hex(p, end, &start);
        if (!p || p == end || *p != ' ')
                return 0; /* damaged: the next line may not be */
        p = read_hex(p + 1, end, &size);
        if (!p || p == end || *p != ' ')
                return 0;
        p++;
        if (end > p && end[-1] == '\r')
                end--;
        if (p == end || memchr(p, 0, (size_t)(end - p)))
                return 0;
        return add_code(j, start, size, p, (size_t)(end - p), NO_LINES);
}

/* Bytes that were understood. */
static int64_t read_map(struct jit_file *j, const char *data, size_t n)
{
        const char *p = data, *end;

        while ((end = memchr(p, '\n', n - (size_t)(p - data)))) {
                int r = read_map_line(j, p, end);

                if (r < 0)
                        return r;
                p = end + 1;
        }
        if (p == data && n >= MAX_LINE)
                return (int64_t)n; /* no line at all */
        return p - data;
}

/* -- jitdump -- */

static bool grow(void **array, uint32_t *cap, uint32_t n, size_t item)
{
        uint32_t want = *cap ? 2 * *cap : 256;
        void *p;

        if (n < *cap)
                return true;
        p = reallocarray(*array, want, item);
        if (!p)
                return false;
        *array = p;
        *cap = want;
        return true;
}

/* Entries: address, line and column, the file's name, where "\xff" stands for the one before. */
static int read_debug_info(struct jit_file *j, const char *p, size_t n)
{
        struct dump_debug d;
        uint32_t file = 0;
        bool have_file = false;

        if (n < sizeof(d))
                return 0;
        memcpy(&d, p, sizeof(d));
        p += sizeof(d);
        n -= sizeof(d);
        if (!grow((void **)&j->run, &j->cap_runs, j->n_runs, sizeof(*j->run)))
                return -ENOMEM;
        j->run[j->n_runs] = (struct line_run){j->n_lines, 0};
        for (uint64_t i = 0; i < d.n_entries && n > 16; i++) {
                struct line l;
                const char *name = p + 16, *end = memchr(name, 0, n - 16);
                int r;

                if (!end)
                        break;
                memcpy(&l.address, p, sizeof(l.address));
                memcpy(&l.line, p + 8, sizeof(l.line));
                if (!(end - name == 1 && *name == '\xff') || !have_file) {
                        r = add_text(j, name, (size_t)(end - name), &file);
                        if (r < 0)
                                return r;
                        have_file = true;
                }
                l.file = file;
                if (j->n_lines == MAX_LINES)
                        return -E2BIG;
                if (!grow((void **)&j->line, &j->cap_lines, j->n_lines, sizeof(*j->line)))
                        return -ENOMEM;
                j->line[j->n_lines++] = l;
                j->run[j->n_runs].n++;
                n -= (size_t)(end + 1 - p);
                p = end + 1;
        }
        j->pending_run = j->n_runs++;
        j->pending_address = d.code_addr;
        return 0;
}

static int read_load(struct jit_file *j, const char *p, size_t n)
{
        struct dump_load d;
        uint32_t lines = NO_LINES;
        size_t name;

        if (n <= sizeof(d))
                return 0;
        memcpy(&d, p, sizeof(d));
        name = strnlen(p + sizeof(d), n - sizeof(d));
        if (name == n - sizeof(d))
                return 0;
        if (j->pending_run != NO_LINES && j->pending_address == d.code_addr)
                lines = j->pending_run;
        j->pending_run = NO_LINES;
        return add_code(j, d.code_addr, d.code_size, p + sizeof(d), name, lines);
}

static int read_move(struct jit_file *j, const char *p, size_t n)
{
        const struct code_entry *old = NULL;
        struct dump_move d;
        struct code_entry e;

        if (n < sizeof(d))
                return 0;
        memcpy(&d, p, sizeof(d));
        if (code_map_settle(&j->map) < 0)
                return -ENOMEM;
        old = code_map_find(&j->map, d.old_code_addr);
        if (!old || d.code_size == 0 || d.new_code_addr + d.code_size < d.new_code_addr)
                return 0;
        e = *old;
        e.start = d.new_code_addr;
        e.end = d.new_code_addr + d.code_size;
        e.lines = NO_LINES; /* their addresses are the old ones */
        return code_map_add(&j->map, &e);
}

static int64_t read_dump(struct jit_file *j, const char *data, size_t n)
{
        size_t at = 0;

        if (j->offset == 0) {
                struct dump_header h;

                if (n < sizeof(h))
                        return 0;
                memcpy(&h, data, sizeof(h));
                if (h.magic != DUMP_MAGIC || h.total_size < sizeof(h) || h.total_size > READ_CHUNK ||
                    h.pid != j->pid)
                        return -EBADMSG;
                if (n < h.total_size)
                        return 0;
                at = h.total_size;
        }
        while (n - at >= sizeof(struct dump_record)) {
                struct dump_record record;
                const char *body = data + at + sizeof(record);
                int r = 0;

                memcpy(&record, data + at, sizeof(record));
                if (record.total_size < sizeof(record) || record.total_size > MAX_RECORD)
                        return -EBADMSG;
                if (record.total_size > n - at)
                        break;

                size_t size = record.total_size - sizeof(record);

                if (record.id == DUMP_CODE_LOAD)
                        r = read_load(j, body, size);
                else if (record.id == DUMP_CODE_MOVE)
                        r = read_move(j, body, size);
                else if (record.id == DUMP_DEBUG_INFO)
                        r = read_debug_info(j, body, size);
                if (r < 0)
                        return r;
                at += record.total_size;
        }
        return (int64_t)at;
}

/* -- reading on -- */

int jit_file_refresh(struct jit_file *j)
{
        _cleanup_free_ char *data = NULL;
        size_t cap = 0;
        struct stat st;

        if (fstat(j->fd, &st) < 0)
                return -errno;
        if ((uint64_t)st.st_size < j->offset)
                forget(j); /* begun anew */
        while ((uint64_t)st.st_size > j->offset) {
                uint64_t left = (uint64_t)st.st_size - j->offset;
                size_t want = MIN_OF(left, (uint64_t)(cap ? cap : READ_CHUNK));
                ssize_t got;
                int64_t used;

                if (cap < want) {
                        free(data);
                        data = malloc(want);
                        if (!data)
                                return -ENOMEM;
                        cap = want;
                }
                got = pread(j->fd, data, want, (off_t)j->offset);
                if (got <= 0)
                        break;
                used = j->kind == WIRE_JIT_MAP ? read_map(j, data, (size_t)got)
                                               : read_dump(j, data, (size_t)got);
                if (used < 0)
                        return (int)used;
                j->offset += (uint64_t)used;
                if (used == 0 && ((uint64_t)got == left || cap >= MAX_RECORD))
                        break;   /* the rest is not all there yet */
                if (used == 0) { /* a record that is larger than the chunk */
                        free(data);
                        cap = (size_t)MIN_OF(left, (uint64_t)MAX_RECORD);
                        data = malloc(cap);
                        if (!data)
                                return -ENOMEM;
                }
        }
        return code_map_settle(&j->map);
}

static const struct line *find_line(const struct jit_file *j, uint32_t run, uint64_t address)
{
        const struct line *best = NULL;

        for (uint32_t i = 0; i < j->run[run].n; i++) {
                const struct line *l = &j->line[j->run[run].first + i];

                if (l->address <= address && (!best || l->address >= best->address))
                        best = l;
        }
        return best;
}

int jit_file_name(const struct jit_file *j, uint64_t address, struct names *names)
{
        const struct code_entry *e = code_map_find(&j->map, address);
        const struct line *l;
        int r = names_begin(names);

        if (r < 0 || !e)
                return r;
        l = e->lines != NO_LINES ? find_line(j, e->lines, address) : NULL;
        return names_add_raw(names, j->text.data + e->name, l ? j->text.data + l->file : NULL,
                             l ? l->line : 0, 0, false);
}
