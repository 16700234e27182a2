#include "tests/daemon/tracker_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "symbolizer/client.h"

#define DRAIN_NS (500 * NSEC_PER_MSEC)

struct rig *rig_new(uint32_t frequency, uint64_t table_memory)
{
        static const char *const events[] = {"cpu-clock"};
        struct symclient_options options = {0};
        struct sampler_config config = {.events = events,
                                        .n_events = 1,
                                        .frequency = frequency,
                                        .memory = 128 << 20,
                                        .drain_ms = 500};
        struct rig *r = calloc(1, sizeof(*r));
        struct unwind_maps maps;

        int e = symclient_new(&r->symbols, &options);
        if (e == 0)
                e = sampler_new(&r->sampler, &config);
        if (e == 0) {
                sampler_unwind_maps(r->sampler, &maps);
                e = tracker_new(&r->tracker, &maps, r->symbols, table_memory);
        }
        if (e == 0)
                e = tracker_start(r->tracker);
        if (e == 0)
                e = sampler_start(r->sampler);
        if (e < 0) {
                printf("cannot sample here: %s\n", strerror(-e));
                return rig_free(r);
        }
        return r;
}

void rig_forget(struct rig *r)
{
        for (uint32_t i = 0; i < r->n; i++)
                free(r->row[i].frame);
        r->n = 0;
}

struct rig *rig_free(struct rig *r)
{
        rig_forget(r);
        free(r->row);
        tracker_free(r->tracker);
        sampler_free(r->sampler);
        symclient_free(r->symbols);
        for (uint32_t i = 0; i < r->n_paths; i++)
                free(r->path[i]);
        free(r->path);
        free(r);
        return NULL;
}

static const char *keep_path(struct rig *r, const char *path)
{
        for (uint32_t i = 0; i < r->n_paths; i++)
                if (strcmp(r->path[i], path) == 0)
                        return r->path[i];
        r->path = reallocarray(r->path, r->n_paths + 1, sizeof(*r->path));
        r->path[r->n_paths] = strdup(path);
        return r->path[r->n_paths++];
}

static int on_row(void *ctx, const struct sample_row *from)
{
        struct rig *r = ctx;

        if (r->only_pid && from->key->tgid != r->only_pid)
                return 0;
        if (r->n == r->cap) {
                r->cap = r->cap ? r->cap * 2 : 1024;
                r->row = reallocarray(r->row, r->cap, sizeof(*r->row));
        }
        struct rig_row *row = &r->row[r->n++];
        *row = (struct rig_row){
                        .pid = from->key->tgid,
                        .start_ns = from->key->start_ns,
                        .walk = from->key->walk,
                        .samples = from->samples,
                        .deferred = r->deferred,
                        .n = from->n_user,
                        .frame = calloc(from->n_user + 1, sizeof(*row->frame)),
        };
        memcpy(row->comm, from->key->comm, sizeof(row->comm));
        row->comm[sizeof(row->comm) - 1] = 0;
        (void)tracker_process(r->tracker, row->pid, row->start_ns); /* as the daemon does: it was seen */
        for (uint32_t i = 0; i < row->n; i++) {
                uint32_t id = ABI_FRAME_OBJECT(from->user[i]);
                const struct object *o = id ? tracker_object(r->tracker, id) : NULL;
                row->frame[i] = (struct rig_frame){
                                .object = id,
                                .path = o ? keep_path(r, o->path) : "",
                                .named = o && o->symbols,
                                .address = ABI_FRAME_ADDRESS(from->user[i]),
                };
        }
        return 0;
}

static void on_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct rig *r = ctx;

        tracker_defer(r->tracker, raw, kernel, n_kernel);
}

static void drain(struct rig *r)
{
        tracker_poll(r->tracker);
        r->deferred = false;
        sampler_drain(r->sampler, on_row, on_raw, r);
        r->deferred = true;
        tracker_drain(r->tracker, on_row, r);
        r->deferred = false;
        tracker_drained(r->tracker);
        r->drains++;
}

/* One turn of at most 50 ms. */
static void turn(struct rig *r, uint64_t *last_drain)
{
        struct pollfd fds[3] = {
                        {.fd = sampler_fd(r->sampler), .events = POLLIN},
                        {.fd = tracker_fd(r->tracker), .events = POLLIN},
                        {.fd = symclient_fd(r->symbols), .events = POLLIN},
        };

        poll(fds, 3, 50);
        symclient_dispatch(r->symbols);
        sampler_poll(r->sampler, on_raw, r);
        tracker_poll(r->tracker);
        if (now_monotonic_ns() - *last_drain > DRAIN_NS) {
                *last_drain = now_monotonic_ns();
                drain(r);
        }
}

void rig_run(struct rig *r, uint32_t ms)
{
        uint64_t end = now_monotonic_ns() + ms * NSEC_PER_MSEC, last_drain = now_monotonic_ns();

        while (now_monotonic_ns() < end)
                turn(r, &last_drain);
}

int rig_run_child(struct rig *r, int pid)
{
        uint64_t last_drain = now_monotonic_ns();
        int status = -1;

        while (waitpid(pid, &status, WNOHANG) == 0)
                turn(r, &last_drain);
        return status;
}

void rig_settle(struct rig *r)
{
        uint64_t last_drain = now_monotonic_ns();
        uint32_t until = r->drains + 3;

        while (r->drains < until)
                turn(r, &last_drain);
}

uint64_t rig_given_up(const struct rig *r)
{
        uint64_t stats[ABI_STAT_MAX];
        struct tracker_stats t;

        sampler_stats(r->sampler, stats);
        tracker_stats(r->tracker, &t);
        return t.deferred_hurried + t.deferred_lost + stats[ABI_STAT_RAWS_FULL];
}

bool rig_function(const char *file, const char *name, uint64_t *start, uint64_t *end)
{
        _cleanup_close_ int fd = open(file, O_RDONLY | O_CLOEXEC);
        Elf_Scn *section = NULL;
        GElf_Shdr header;
        GElf_Sym symbol;
        bool found = false;

        elf_version(EV_CURRENT);
        Elf *e = elf_begin(fd, ELF_C_READ, NULL);
        while (!found && (section = elf_nextscn(e, section))) {
                if (!gelf_getshdr(section, &header) || header.sh_type != SHT_SYMTAB)
                        continue;
                Elf_Data *data = elf_getdata(section, NULL);
                for (int i = 0; !found && gelf_getsym(data, i, &symbol); i++) {
                        const char *s = elf_strptr(e, header.sh_link, symbol.st_name);
                        found = s && strcmp(s, name) == 0 && symbol.st_size;
                }
        }
        elf_end(e);
        *start = found ? symbol.st_value : 0;
        *end = found ? symbol.st_value + symbol.st_size : 0;
        return found;
}

static bool row_hits(const struct rig_row *row, const char *path, uint64_t start, uint64_t end)
{
        for (uint32_t i = 0; i < row->n; i++)
                if (row->frame[i].named && strcmp(row->frame[i].path, path) == 0 &&
                    row->frame[i].address >= start && row->frame[i].address < end)
                        return true;
        return false;
}

struct rig_count rig_count(const struct rig *r, const char *comm, const char *file, const char *path,
                           const char *function)
{
        struct rig_count c = {0};
        uint64_t start = 0, end = 0;

        if (file && !rig_function(file, function, &start, &end))
                printf("%s has no function %s\n", file, function);
        for (uint32_t i = 0; i < r->n; i++) {
                const struct rig_row *row = &r->row[i];
                if (comm && strncmp(row->comm, comm, strlen(comm)) != 0)
                        continue;
                c.samples += row->samples;
                c.walk[row->walk] += row->samples;
                if (row->walk == ABI_WALK_COMPLETE || row->walk == ABI_WALK_FOLDED)
                        c.complete += row->samples;
                if (row->deferred)
                        c.deferred += row->samples;
                if (file && row_hits(row, path ? path : file, start, end))
                        c.hit += row->samples;
        }
        return c;
}

/* Started and not known to have ended. */
static int spawned[32];

int rig_spawn(char *const argv[])
{
        int pid = fork();

        if (pid == 0) {
                setpriority(PRIO_PROCESS, 0, 0);  /* whatever the test's own is */
                prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that dies leaves nothing that waits for it */
                execv(argv[0], argv);
                _exit(127);
        }
        for (size_t i = 0; pid > 0 && i < ARRAY_SIZE(spawned); i++)
                if (!spawned[i]) {
                        spawned[i] = pid;
                        break;
                }
        return pid;
}

void rig_kill_children(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(spawned); i++) {
                /* 0: it runs, so the pid is still its own */
                if (spawned[i] && waitpid(spawned[i], NULL, WNOHANG) == 0) {
                        kill(spawned[i], SIGKILL);
                        waitpid(spawned[i], NULL, 0);
                }
                spawned[i] = 0;
        }
}
