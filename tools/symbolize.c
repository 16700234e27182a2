/* profctl symbolize: addr2line -fipC, by profd's own symbolizer. For a file addresses are the object's own;
 * for a process they are the process's, and /proc/PID/maps tells which object they are in. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "symbolizer/kernel.h"
#include "tools/object.h"
#include "tools/say.h"
#include "tools/text.h"
#include "tools/query.h"
#include "tools/verb.h"

#define INPUT_MAX   65536
#define MAX_OBJECTS 4096
#define MAX_BATCH   4096
#define MAPS_MAX    (64u << 20)
#define KERNEL_HALF (1ull << 63)

enum { OPT_ADDRESSES };

struct mapping {
        uint64_t start, end, offset;
        int object; /* index, -1: anonymous */
};

struct symbolize {
        bool with_addresses;
        struct symclient *client;
        struct object *object;
        uint32_t n_objects;
        char **path; /* of the objects of a process, as it sees them */
        bool *tried;
        pid_t pid; /* 0: a file */
        struct mapping *mapping;
        uint32_t n_mappings;
        struct object jit;
        bool jit_tried;
        struct kernel_symbols *kernel;
        bool kernel_tried;
        struct buf out;
        const uint64_t *asked; /* the addresses as given, of the batch that is being named */
};

static int set(void *ctx, int id, const char *value)
{
        ((struct symbolize *)ctx)->with_addresses = true;
        return 0;
}

static const struct option_spec options[] = {
                {"addresses", 'a', NULL, "each address before its names", OPT_ADDRESSES},
};

static const struct command_spec spec = {
                .name = "symbolize",
                .arguments = "[OPTION...] FILE|PID [ADDRESS...]",
                .summary = "Names of addresses (hexadecimal) as addr2line -fipC prints them: function, "
                           "file\n"
                           "and line, and what it is inlined into. Without ADDRESS: one a line from the\n"
                           "standard input. In a FILE addresses are as in its symbol table; in a process\n"
                           "as it sees them.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .set = set,
};

/* -- output -- */

static void put_address(struct symbolize *s, uint64_t address)
{
        if (s->with_addresses)
                buf_addf(&s->out, "0x%016" PRIx64 ": ", address);
}

static void put_unknown(struct symbolize *s, uint64_t address)
{
        put_address(s, address);
        buf_adds(&s->out, "?? ??:0\n");
}

static void put_frame(struct symbolize *s, const struct sym_frame *f)
{
        text_fit(&s->out, f->function ? f->function : "??", -1, false);
        buf_adds(&s->out, " at ");
        text_fit(&s->out, f->file ? f->file : "??", -1, false);
        if (f->line)
                buf_addf(&s->out, ":%" PRIu32 "\n", f->line);
        else
                buf_adds(&s->out, ":?\n");
}

static void on_names(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        struct symbolize *s = ctx;

        if (err < 0)
                return;
        for (uint32_t i = 0; i < n; i++) {
                if (results[i].n == 0) {
                        put_unknown(s, s->asked[i]);
                        continue;
                }
                put_address(s, s->asked[i]);
                for (uint32_t f = 0; f < results[i].n; f++) {
                        if (f > 0)
                                buf_adds(&s->out, " (inlined by) ");
                        put_frame(s, &results[i].frame[f]);
                }
        }
}

/* Names addresses of one object; `asked` are the same as they were given. */
static int name_in(struct symbolize *s, struct object *o, const uint64_t *addresses, const uint64_t *asked,
                   uint32_t n)
{
        s->asked = asked;
        int r = object_names(s->client, o, addresses, n, on_names, s);
        return r < 0 ? say_failed("cannot name addresses: %s", strerror(-r)) : 0;
}

/* -- a process -- */

/* The object of a path, added when it is new; -1: there are too many. */
static int object_of(struct symbolize *s, const char *path)
{
        for (uint32_t i = s->n_objects; i-- > 0;)
                if (!strcmp(s->path[i], path))
                        return (int)i;
        if (s->n_objects == MAX_OBJECTS)
                return -1;
        s->path[s->n_objects] = strdup(path);
        return s->path[s->n_objects] ? (int)s->n_objects++ : -1;
}

static int add_mapping(struct symbolize *s, const char *line)
{
        uint64_t start, end, offset;
        char perms[8];
        int at = 0;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n", &start, &end, perms, &offset,
                   &at) < 4)
                return 0;
        if (!strchr(perms, 'x'))
                return 0;
        if (s->n_mappings % 256 == 0) {
                struct mapping *m = reallocarray(s->mapping, s->n_mappings + 256, sizeof(*m));
                if (!m)
                        return -ENOMEM;
                s->mapping = m;
        }
        const char *path = at > 0 ? line + at : "";
        s->mapping[s->n_mappings++] = (struct mapping){
                        .start = start,
                        .end = end,
                        .offset = offset,
                        .object = path[0] == '/' ? object_of(s, path) : -1,
        };
        return 0;
}

static int read_maps(struct symbolize *s)
{
        char path[64], *save = NULL;
        _cleanup_buf_ struct buf b = {0};

        snprintf(path, sizeof(path), "/proc/%d/maps", s->pid);
        int r = read_file(path, MAPS_MAX, &b);
        if (r == -ENOENT)
                return say_failed("there is no process %d", s->pid);
        if (r < 0)
                return say_failed("cannot read the mappings of process %d: %s%s", s->pid, strerror(-r),
                                  r == -EACCES || r == -EPERM ? "; use sudo" : "");
        for (char *line = strtok_r(b.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                if (add_mapping(s, line) < 0)
                        return say_failed("%s", strerror(ENOMEM));
        return 0;
}

/* Through map_files the right file is opened also when it was deleted or replaced; that takes a privilege,
 * else the process's own root serves. */
static int open_mapped(const struct symbolize *s, const struct mapping *m)
{
        char path[4200];

        snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, s->pid, m->start, m->end);
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0)
                return fd;
        snprintf(path, sizeof(path), "/proc/%d/root%s", s->pid, s->path[m->object]);
        return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static struct object *mapped_object(struct symbolize *s, const struct mapping *m)
{
        struct object *o = &s->object[m->object];
        char root[64];

        if (!s->tried[m->object]) {
                s->tried[m->object] = true;
                *o = (struct object){.err = -ENOENT};
                int fd = open_mapped(s, m);
                snprintf(root, sizeof(root), "/proc/%d/root", s->pid);
                if (fd >= 0)
                        object_open_fd(s->client, fd, s->path[m->object], root, o);
        }
        return o->err < 0 ? NULL : o;
}

static struct object *jit_object(struct symbolize *s)
{
        if (!s->jit_tried) {
                s->jit_tried = true;
                object_open_jit(s->client, (uint32_t)s->pid, &s->jit);
        }
        return s->jit.err < 0 ? NULL : &s->jit;
}

static void name_kernel(struct symbolize *s, uint64_t address)
{
        struct kernel_symbol k;

        if (!s->kernel_tried) {
                s->kernel_tried = true;
                kernel_symbols_new(&s->kernel);
        }
        if (!s->kernel || !kernel_symbols_find(s->kernel, address, &k)) {
                put_unknown(s, address);
                return;
        }
        put_address(s, address);
        put_frame(s, &(struct sym_frame){.function = k.name, .file = k.module});
}

static const struct mapping *mapping_of(const struct symbolize *s, uint64_t address)
{
        uint32_t lo = 0, hi = s->n_mappings; /* the kernel lists them by address */

        while (lo < hi) {
                uint32_t mid = lo + (hi - lo) / 2;
                if (s->mapping[mid].end <= address)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo < s->n_mappings && s->mapping[lo].start <= address ? &s->mapping[lo] : NULL;
}

/* Where an address of the process is: the object and its own address there. NULL: nowhere that has names. */
static struct object *locate(struct symbolize *s, uint64_t address, uint64_t *ret)
{
        const struct mapping *m = mapping_of(s, address);

        if (!m)
                return NULL;
        if (m->object < 0) {
                *ret = address;
                return jit_object(s);
        }
        struct object *o = mapped_object(s, m);
        return o && object_address(o, address - m->start + m->offset, ret) ? o : NULL;
}

static int name_in_process(struct symbolize *s, const uint64_t *asked, uint32_t n)
{
        uint64_t address[MAX_BATCH];

        for (uint32_t i = 0; i < n;) {
                if (asked[i] >= KERNEL_HALF) {
                        name_kernel(s, asked[i++]);
                        continue;
                }
                struct object *o = locate(s, asked[i], &address[0]);
                if (!o) {
                        put_unknown(s, asked[i++]);
                        continue;
                }
                uint32_t run = 1; /* neighbours of one object go together */
                while (i + run < n && asked[i + run] < KERNEL_HALF &&
                       locate(s, asked[i + run], &address[run]) == o)
                        run++;
                int r = name_in(s, o, address, asked + i, run);
                if (r != 0)
                        return r;
                i += run;
        }
        return 0;
}

/* -- input -- */

static int name_batch(struct symbolize *s, const uint64_t *addresses, uint32_t n)
{
        int r = s->pid ? name_in_process(s, addresses, n)
                       : name_in(s, &s->object[0], addresses, addresses, n);

        r = r ? r : say_out(&s->out);
        buf_clear(&s->out);
        return r;
}

static bool parse_address(const char *text, uint64_t *ret)
{
        char *end;

        if (!isxdigit((unsigned char)text[0]))
                return false;
        errno = 0;
        *ret = strtoull(text, &end, 16);
        return !*end && !errno;
}

/* Takes what has come, whole lines at a time, so that it also serves a program that asks line by line. */
static int name_input(struct symbolize *s)
{
        static char text[INPUT_MAX];
        uint64_t batch[MAX_BATCH];
        size_t have = 0;

        for (;;) {
                ssize_t got = read(STDIN_FILENO, text + have, sizeof(text) - 1 - have);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return say_failed("cannot read the standard input: %s", strerror(errno));
                have += (size_t)got;
                text[have] = 0;
                char *p = text, *stop = got == 0 ? text + have : strrchr(text, '\n');
                if (!stop && have == sizeof(text) - 1)
                        return say_failed("a line of the input is longer than %d bytes", INPUT_MAX);
                uint32_t n = 0;
                while (stop && p < stop) {
                        p += strspn(p, " \t\r\n");
                        size_t len = strcspn(p, " \t\r\n");
                        if (len == 0 || p >= stop)
                                break;
                        char saved = p[len];
                        p[len] = 0;
                        if (!parse_address(p, &batch[n]))
                                return say_failed("'%s' is not an address; addresses are hexadecimal", p);
                        p[len] = saved;
                        p += len;
                        if (++n == MAX_BATCH) {
                                int r = name_batch(s, batch, n);
                                if (r != 0)
                                        return r;
                                n = 0;
                        }
                }
                int r = n > 0 ? name_batch(s, batch, n) : 0;
                if (r != 0 || got == 0)
                        return r;
                if (stop) {
                        have -= (size_t)(stop - text);
                        memmove(text, stop, have);
                }
        }
}

static int name_arguments(struct symbolize *s, char **argv, int n)
{
        for (int i = 0; i < n; i++) {
                uint64_t a;
                if (!parse_address(argv[i], &a))
                        return say_usage("symbolize", "'%s' is not an address (hexadecimal)", argv[i]);
                int r = name_batch(s, &a, 1);
                if (r != 0)
                        return r;
        }
        return STATUS_DONE;
}

static int open_target(struct symbolize *s, const char *what)
{
        uint64_t pid;
        bool is_pid = parse_u64(what, 1, INT32_MAX, &pid) == 0 && access(what, F_OK) < 0;

        s->object = calloc(MAX_OBJECTS, sizeof(*s->object));
        s->path = calloc(MAX_OBJECTS, sizeof(*s->path));
        s->tried = calloc(MAX_OBJECTS, sizeof(*s->tried));
        if (!s->object || !s->path || !s->tried)
                return say_failed("%s", strerror(ENOMEM));
        if (is_pid) {
                s->pid = (pid_t)pid;
                return read_maps(s);
        }
        int fd = open(what, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
                return say_failed("cannot open %s: %s", what, strerror(errno));
        char *real = realpath(what, NULL);
        s->path[0] = real ? real : strdup(what);
        s->tried[0] = true;
        s->n_objects = 1;
        int r = object_open_fd(s->client, fd, s->path[0], NULL, &s->object[0]);
        return r < 0 ? say_failed("cannot read %s: %s", what,
                                  r == -ENOEXEC ? "it is not an ELF object" : strerror(-r))
                     : 0;
}

static void release(struct symbolize *s)
{
        for (uint32_t i = 0; i < s->n_objects; i++) {
                if (s->tried[i])
                        object_close(s->client, &s->object[i]);
                free(s->path[i]);
        }
        if (s->jit_tried)
                object_close(s->client, &s->jit);
        kernel_symbols_free(s->kernel);
        symclient_free(s->client);
        free(s->object);
        free(s->path);
        free(s->tried);
        free(s->mapping);
        buf_free(&s->out);
}

int verb_symbolize(int argc, char **argv)
{
        struct symbolize s = {0};
        struct query q;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &s, &first);
        if (r >= 0)
                return r;
        if (first >= argc)
                return say_usage("symbolize", "no FILE or PID given");
        r = symclient_new(&s.client, &(struct symclient_options){0});
        if (r < 0)
                r = say_failed("cannot start the symbolizer: %s", strerror(-r));
        r = r ? r : open_target(&s, argv[first]);
        if (r == 0)
                r = first + 1 < argc ? name_arguments(&s, argv + first + 1, argc - first - 1)
                                     : name_input(&s);
        release(&s);
        return r;
}
