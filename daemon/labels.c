#include "daemon/labels.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "base/io.h"
#include "base/log.h"

#define KEEP_DRAINS \
        24 /* a process that sleeps for two minutes at the default interval is not looked up again */
#define MAX_PROC_FILE 65536
#define MAX_USERS     65536
#define MAX_ANCESTORS 16

struct entry {
        uint32_t pid;
        uint64_t start_ns;
        uint64_t cgroup;
        uint32_t uid;
        uint64_t last_drain;
        struct process_labels labels;
};

struct user {
        uint32_t uid;
        char name[40];
};

struct labels {
        struct tracker *tracker;
        struct cgroup_resolver *cgroups; /* NULL: no v2 hierarchy */
        /* Pointers, so that entries stay where they are while the array grows. */
        struct entry **entries;
        uint32_t n_entries, cap_entries;
        struct idtable by_process;
        uint64_t drain;

        struct user *users;
        uint32_t n_users;
        struct timespec passwd_mtime;
};

/* Names only from /etc/passwd: asking a network directory could stop the profiler for as long as it likes.
 */
static void read_users(struct labels *l)
{
        struct stat st;

        if (stat("/etc/passwd", &st) < 0 ||
            (st.st_mtim.tv_sec == l->passwd_mtime.tv_sec && st.st_mtim.tv_nsec == l->passwd_mtime.tv_nsec))
                return;
        _cleanup_fclose_ FILE *f = fopen("/etc/passwd", "re");
        if (!f)
                return;
        l->passwd_mtime = st.st_mtim;
        l->n_users = 0;
        for (struct passwd *pw; l->n_users < MAX_USERS && (pw = fgetpwent(f));) {
                if ((l->n_users & (l->n_users - 1)) == 0) {
                        size_t cap = l->n_users ? l->n_users * 2 : 1;
                        struct user *users = realloc(l->users, cap * sizeof(*users));
                        if (!users)
                                return;
                        l->users = users;
                }
                struct user *u = &l->users[l->n_users++];
                u->uid = pw->pw_uid;
                snprintf(u->name, sizeof(u->name), "%s", pw->pw_name);
        }
}

static void user_name(struct labels *l, uint32_t uid, char *ret, size_t size)
{
        read_users(l);
        for (uint32_t i = 0; i < l->n_users; i++)
                if (l->users[i].uid == uid) {
                        snprintf(ret, size, "%s", l->users[i].name);
                        return;
                }
        snprintf(ret, size, "%u", uid);
}

static uint64_t process_hash(uint32_t pid, uint64_t start_ns)
{
        return hash_u64(pid, start_ns);
}

static bool entry_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct labels *l = ctx;
        const struct abi_key *k = key;
        const struct entry *e = l->entries[id];

        /* A process that changed its user or moved to another cgroup has new labels. */
        return e->pid == k->tgid && e->start_ns == k->start_ns && e->uid == k->uid && e->cgroup == k->cgroup;
}

static uint64_t entry_hash(const void *ctx, uint32_t id)
{
        const struct labels *l = ctx;

        return process_hash(l->entries[id]->pid, l->entries[id]->start_ns);
}

static bool same_process(const void *ctx, uint32_t id, const void *key)
{
        const struct labels *l = ctx;
        const struct process *p = key;

        return l->entries[id]->pid == p->pid && l->entries[id]->start_ns == p->start_ns;
}

/* The cgroup of the nearest ancestor whose labels are known: a fork starts in its parent's. */
static bool inherit_cgroup(struct labels *l, const struct process *p, struct cgroup_names *ret)
{
        for (int i = 0; p && i < MAX_ANCESTORS; i++) {
                p = tracker_process(l->tracker, p->ppid, 0);
                if (!p)
                        return false;
                uint32_t id = idtable_find(&l->by_process, process_hash(p->pid, p->start_ns), same_process,
                                           l, p);
                if (id != IDTABLE_NONE) {
                        *ret = l->entries[id]->labels.cgroup;
                        return true;
                }
        }
        return false;
}

static bool cgroup_of_pid(uint32_t pid, struct cgroup_names *ret)
{
        _cleanup_buf_ struct buf text = {0};
        char file[64], path[4096];

        snprintf(file, sizeof(file), "/proc/%u/cgroup", pid);
        if (read_file(file, MAX_PROC_FILE, &text) < 0)
                return false;
        cgroup_choose(buf_text(&text), path, sizeof(path));
        cgroup_parse(path, ret);
        return true;
}

static void find_cgroup(struct labels *l, const struct abi_key *key, const struct process *p,
                        struct cgroup_names *ret)
{
        char path[4096];

        /* 1 is the root of the v2 hierarchy: on a hybrid host everything is there, and v1 knows more. */
        if (l->cgroups && key->cgroup > 1 && cgroup_path(l->cgroups, key->cgroup, path, sizeof(path)) >= 0 &&
            strcmp(path, "/") != 0) {
                cgroup_parse(path, ret);
                return;
        }
        if ((!p || !p->exited) && cgroup_of_pid(key->tgid, ret))
                return;
        if (p && inherit_cgroup(l, p, ret))
                return;
        if (p && p->ppid)
                cgroup_of_pid(p->ppid, ret);
}

static void find_comm(const struct abi_key *key, const struct process *p, char ret[ABI_COMM_LEN + 1])
{
        char file[64];
        _cleanup_buf_ struct buf text = {0};

        if (p && p->comm[0]) {
                snprintf(ret, ABI_COMM_LEN + 1, "%.*s", ABI_COMM_LEN, p->comm);
                return;
        }
        snprintf(file, sizeof(file), "/proc/%u/comm", key->tgid);
        if (read_file(file, 64, &text) >= 0 && text.len > 1)
                snprintf(ret, ABI_COMM_LEN + 1, "%.*s", (int)MIN_OF(text.len - 1, (size_t)ABI_COMM_LEN),
                         text.data);
        else
                snprintf(ret, ABI_COMM_LEN + 1, "%.*s", ABI_COMM_LEN, (const char *)key->comm);
}

static struct entry *add_entry(struct labels *l, const struct abi_key *key)
{
        if (l->n_entries == l->cap_entries) {
                uint32_t cap = l->cap_entries ? l->cap_entries * 2 : 64;
                struct entry **entries = realloc(l->entries, cap * sizeof(*entries));
                if (!entries)
                        return NULL;
                l->entries = entries;
                l->cap_entries = cap;
        }
        _cleanup_free_ struct entry *e = calloc(1, sizeof(*e));
        if (!e)
                return NULL;
        *e = (struct entry){
                        .pid = key->tgid, .start_ns = key->start_ns, .cgroup = key->cgroup, .uid = key->uid};
        l->entries[l->n_entries] = e;
        if (idtable_add(&l->by_process, process_hash(e->pid, e->start_ns), l->n_entries, entry_hash, l) < 0)
                return NULL;
        l->n_entries++;
        return TAKE_PTR(e);
}

const struct process_labels *labels_of(struct labels *l, const struct abi_key *key)
{
        const struct process *p = tracker_process(l->tracker, key->tgid, key->start_ns);
        uint32_t id = idtable_find(&l->by_process, process_hash(key->tgid, key->start_ns), entry_equal, l,
                                   key);
        struct entry *e = id == IDTABLE_NONE ? NULL : l->entries[id];

        if (!e) {
                struct cgroup_names cgroup = {0};

                find_cgroup(l, key, p, &cgroup);
                e = add_entry(l, key);
                if (!e)
                        return NULL;
                e->labels.cgroup = cgroup;
                user_name(l, key->uid, e->labels.user, sizeof(e->labels.user));
        }
        /* exec and prctl change a name */
        if (e->last_drain != l->drain || !e->labels.comm[0])
                find_comm(key, p, e->labels.comm);
        e->last_drain = l->drain;
        return &e->labels;
}

void labels_drained(struct labels *l)
{
        uint32_t kept = 0;

        l->drain++;
        if (l->drain % KEEP_DRAINS)
                return;
        for (uint32_t i = 0; i < l->n_entries; i++) {
                if (l->drain - l->entries[i]->last_drain > KEEP_DRAINS)
                        free(l->entries[i]);
                else
                        l->entries[kept++] = l->entries[i];
        }
        l->n_entries = kept;
        idtable_clear(&l->by_process);
        for (uint32_t i = 0; i < kept; i++)
                if (idtable_add(&l->by_process, entry_hash(l, i), i, entry_hash, l) < 0)
                        break; /* cannot happen: the table has had room for more */
}

int labels_new(struct labels **ret, struct tracker *tracker)
{
        struct labels *l = calloc(1, sizeof(*l));

        if (!l)
                return -ENOMEM;
        l->tracker = tracker;
        l->drain = 1;
        int r = cgroup_resolver_new(&l->cgroups);
        if (r == -ENOMEM) {
                free(l);
                return r;
        }
        *ret = l;
        return 0;
}

struct labels *labels_free(struct labels *l)
{
        if (!l)
                return NULL;
        for (uint32_t i = 0; i < l->n_entries; i++)
                free(l->entries[i]);
        free(l->entries);
        idtable_free(&l->by_process);
        free(l->users);
        cgroup_resolver_free(l->cgroups);
        free(l);
        return NULL;
}
