#include "daemon/object_table.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/kept_state.h"

#define MAX_IDS         65535u
#define MAX_OBJECTS     (1u << 20) /* with the anonymous ones, which have no id */
#define OPEN_TIMEOUT_MS 2000
#define LOOK_NS         (1 * NSEC_PER_SEC)  /* between two looks whether a file was changed in place */
#define RETRY_NS        (1 * NSEC_PER_SEC)  /* after a file was found nowhere */
#define MAX_WAIT_NS     (64 * NSEC_PER_SEC) /* between two tries when too little of something is there */
#define NO_ROOM_NS      (10 * NSEC_PER_SEC)
#define IDLE_NS         (300 * NSEC_PER_SEC) /* an object outlives its last process by this, */
#define SHORT_NS        (2 * MAX_WAIT_NS)    /* but not when others lacked a descriptor this short ago */
/* A table of which only parts fit is asked for again at most so often that making it takes about a hundredth
 * of a CPU. */
#define AGAIN_MIN_NS     NSEC_PER_SEC
#define AGAIN_PER_ROW_NS 6000u

/* Frames that were drained are read before the drain after the next. */
#define GRACE_TICKS 3

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#endif

struct object_table {
        struct symclient *symbols;
        struct unwind_tables *tables;
        struct object_opener *opener;
        struct kept_objects *kept;  /* NULL: nothing outlives us */
        struct object_entry **slot; /* NULL: free */
        uint32_t n_slots, cap_slots, free_hint;
        struct idtable index;
        struct object_entry *by_id[MAX_IDS + 1];
        uint32_t next_id, n_ids;
        uint32_t tick;
        uint64_t lacked_ns; /* when there was no descriptor last; 0: never */
        bool changed;
        void (*on_step)(void *ctx);
        void *ctx;
        struct object_table_stats stats;
};

/* -- finding -- */

static uint64_t key_hash(uint64_t device, uint64_t inode, const char *name)
{
        return inode ? hash_u64(device, inode) : hash_bytes(name, strlen(name));
}

static uint64_t slot_hash(const void *ctx, uint32_t id)
{
        const struct object_table *t = ctx;
        const struct object_entry *o = t->slot[id];

        return key_hash(o->device, o->inode, o->path);
}

/* A scan of /proc does not tell the generation: then inode and device have to do. */
static bool slot_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct object_table *t = ctx;
        const struct object_entry *o = t->slot[id];
        const struct object_key *k = key;

        if (o->inode != k->inode)
                return false;
        if (!k->inode)
                return strcmp(o->path, k->name) == 0;
        return o->device == k->device &&
               (o->generation == k->generation || !o->generation || !k->generation);
}

static int take_slot(struct object_table *t, uint32_t *ret)
{
        while (t->free_hint < t->n_slots && t->slot[t->free_hint])
                t->free_hint++;
        if (t->free_hint == t->n_slots) {
                if (t->n_slots == MAX_OBJECTS)
                        return -ENOSPC;
                if (t->n_slots == t->cap_slots) {
                        uint32_t cap = t->cap_slots ? t->cap_slots * 2 : 64;
                        struct object_entry **bigger = reallocarray(t->slot, cap, sizeof(*bigger));
                        if (!bigger)
                                return -ENOMEM;
                        t->slot = bigger;
                        t->cap_slots = cap;
                }
                t->slot[t->n_slots++] = NULL;
        }
        *ret = t->free_hint;
        return 0;
}

/* Ids go round, so that one is not used again soon. */
static uint16_t take_id(struct object_table *t)
{
        if (t->n_ids == MAX_IDS)
                return 0;
        do
                t->next_id = t->next_id % MAX_IDS + 1;
        while (t->by_id[t->next_id]);
        t->n_ids++;
        return (uint16_t)t->next_id;
}

/* The name without the " (deleted)" that the kernel puts behind that of an unlinked file. */
static char *clean_name(const struct object_key *key)
{
        static const char deleted[] = " (deleted)";
        size_t n = strlen(key->name), k = sizeof(deleted) - 1;

        if (key->inode && n > k && memcmp(key->name + n - k, deleted, k) == 0)
                n -= k;
        return strndup(key->name, n);
}

static struct object_entry *entry_new(struct object_table *t, const struct object_key *key)
{
        bool code = !key->inode && strcmp(key->name, "[vdso]") != 0;
        uint32_t slot;

        struct object_entry *o = calloc(1, sizeof(*o));
        if (!o)
                return NULL;
        o->path = clean_name(key);
        if (!o->path || take_slot(t, &slot) < 0)
                goto fail;
        o->table = t;
        o->slot = slot;
        o->object.path = o->path;
        o->device = key->inode ? key->device : 0;
        o->inode = key->inode;
        o->generation = key->inode ? key->generation : 0;
        o->state = code ? OBJECT_CODE : OBJECT_NEW;
        o->used_tick = t->tick;
        if (!code) {
                o->object.id = take_id(t);
                if (!o->object.id)
                        goto fail;
                t->by_id[o->object.id] = o;
        }
        t->slot[slot] = o;
        if (idtable_add(&t->index, slot_hash(t, slot), slot, slot_hash, t) < 0) {
                t->slot[slot] = NULL;
                if (o->object.id) {
                        t->by_id[o->object.id] = NULL;
                        t->n_ids--;
                }
                goto fail;
        }
        t->stats.objects++;
        return o;
fail:
        free(o->path);
        free(o);
        return NULL;
}

struct object_entry *object_table_get(struct object_table *t, const struct object_key *key)
{
        uint32_t slot = idtable_find(&t->index, key_hash(key->device, key->inode, key->name), slot_equal, t,
                                     key);

        if (slot == IDTABLE_NONE)
                return entry_new(t, key);
        struct object_entry *o = t->slot[slot];
        if (key->inode && !o->generation && key->generation) {
                o->generation = key->generation;
                o->looked_ns = 0; /* is it the same file? */
        }
        return o;
}

static void forget_key(struct object_table *t, struct object_entry *o)
{
        idtable_remove(&t->index, slot_hash(t, o->slot), o->slot, slot_hash, t);
}

static void entry_free(struct object_table *t, struct object_entry *o)
{
        if (!o->successor)
                forget_key(t, o);
        symobj_close(t->symbols, o->object.symbols);
        unwind_index_free(t->tables, o->index);
        if (o->object.id) {
                kept_objects_remove(t->kept, o->object.id);
                t->by_id[o->object.id] = NULL;
                t->n_ids--;
        }
        t->slot[o->slot] = NULL;
        t->free_hint = MIN_OF(t->free_hint, o->slot);
        t->stats.objects--;
        free(o->path);
        free(o);
}

static void step_forward(struct object_table *t, struct object_entry *o)
{
        o->version++;
        t->on_step(t->ctx);
}

/* The file has other contents now. Frames of before keep the old object, mappings get the new one. */
static struct object_entry *replace(struct object_table *t, struct object_entry *o)
{
        struct object_key key = {o->device, o->inode, o->generation, o->path};

        forget_key(t, o);
        struct object_entry *new = entry_new(t, &key);
        if (!new) {
                (void)idtable_add(&t->index, slot_hash(t, o->slot), o->slot, slot_hash,
                                  t); /* had room before */
                return NULL;
        }
        new->wait_ns = o->wait_ns;
        new->mapper[0] = o->mapper[0];
        new->mapper[1] = o->mapper[1];
        o->successor = new;
        step_forward(t, o);
        t->changed = true;
        return new;
}

/* -- opening -- */

/* Frames name it from now on. */
static void keep_object(struct object_table *t, const struct object_entry *o)
{
        struct kept_object kept = {
                        .id = o->object.id,
                        .flags = o->object.address_is_offset ? KEPT_OBJECT_OFFSET : 0,
                        .build_id_len = o->object.build_id_len,
                        .device = o->device,
                        .inode = o->inode,
                        .generation = o->generation,
        };

        memcpy(kept.build_id, o->object.build_id, sizeof(kept.build_id));
        snprintf(kept.path, sizeof(kept.path), "%s", o->path);
        kept_objects_put(t->kept, &kept);
}

void object_table_keep(struct object_table *t, struct kept_objects *kept)
{
        t->kept = kept;
}

static void step(struct object_table *t, struct object_entry *o, enum object_state state)
{
        o->state = state;
        step_forward(t, o);
        if (state >= OBJECT_READY) {
                if (o->object.id && t->kept)
                        keep_object(t, o);
                o->republish = true;
                t->changed = true;
        }
}

/* Nothing is wrong with the file: there is too little of something now, descriptors, memory, threads or a
 * worker. */
static bool will_pass(uint32_t error)
{
        return error == EMFILE || error == ENFILE || error == ENOMEM || error == EBUSY || error == EAGAIN ||
               error == ECHILD;
}

/* How long to wait until the next try: as long as it has lasted so far. */
static uint64_t wait_longer(struct object_entry *o)
{
        o->wait_ns = o->wait_ns ? MIN_OF(o->wait_ns * 2, (uint64_t)MAX_WAIT_NS) : RETRY_NS;
        return o->wait_ns;
}

static void fail(struct object_table *t, struct object_entry *o, int error)
{
        o->object.error = (uint32_t)-error;
        o->object.address_is_offset = true;
        if (!o->wait_ns)
                t->stats.failed++;
        if (error == -EMFILE || error == -ENFILE)
                t->lacked_ns = now_monotonic_ns();
        o->retry_ns = now_monotonic_ns() + (will_pass(o->object.error) ? wait_longer(o) : RETRY_NS);
        step(t, o, OBJECT_FAILED);
}

/* -- tables -- */

/* Samples must not be handed over again and again for what cannot be loaded. */
static void no_table_now(struct object_entry *o, uint64_t wait_ns)
{
        unwind_index_fill(o->table->tables, o->index, UNWIND_UNSUPPORTED);
        o->table_state = OBJECT_TABLE_LATER;
        o->retry_ns = now_monotonic_ns() + wait_ns;
}

static void on_table(void *ctx, int err, const struct sym_table *table)
{
        struct object_entry *o = ctx;
        struct object_table *t = o->table;

        step_forward(t, o);
        if (err == -ECANCELED) {
                o->table_state = OBJECT_TABLE_ABSENT;
                return;
        }
        if (err == -ECHILD) {
                no_table_now(o, wait_longer(o));
                return;
        }
        if (err < 0) {
                unwind_index_fill(t->tables, o->index, UNWIND_NONE);
                o->table_state = OBJECT_TABLE_NONE;
                if (err != -ENODATA)
                        o->object.error = (uint32_t)-err;
                return;
        }
        o->wait_ns = 0;
        o->object.rows = table->n_rows;
        o->again_ns = now_monotonic_ns() + MAX_OF(AGAIN_MIN_NS, (uint64_t)table->n_rows * AGAIN_PER_ROW_NS);
        int r = unwind_index_load(t->tables, o->index, table);
        if (r > 0) {
                o->table_state = OBJECT_TABLE_LOADED;
                return;
        }
        no_table_now(o, NO_ROOM_NS);
}

static enum object_answer request_table(struct object_table *t, struct object_entry *o)
{
        if (o->table_state == OBJECT_TABLE_REQUESTED)
                return OBJECT_WAIT;
        o->table_state = OBJECT_TABLE_REQUESTED;
        unwind_index_expect(t->tables, o->index);
        int r = symclient_table(t->symbols, o->object.symbols, on_table, o);
        if (r < 0)
                no_table_now(o, wait_longer(o));
        return o->table_state == OBJECT_TABLE_REQUESTED ? OBJECT_WAIT : OBJECT_HAVE;
}

enum object_answer object_table_need_rows(struct object_table *t, struct object_entry *o, uint64_t address,
                                          uint64_t now_ns)
{
        if (!o->index || !unwind_index_want(t->tables, o->index, address))
                return OBJECT_HAVE;
        if (now_ns < o->again_ns)
                return OBJECT_WAIT; /* what is wanted meanwhile is loaded together */
        return request_table(t, o);
}

static void on_info(void *ctx, int err, struct symobj *obj, const struct sym_info *info)
{
        struct object_entry *o = ctx;
        struct object_table *t = o->table;

        if (err == -ECANCELED)
                return; /* closed, or at the end */
        o->object.symbols = obj;
        if (err < 0) {
                symobj_close(t->symbols, TAKE_PTR(o->object.symbols));
                o->object.error = (uint32_t)-err;
                if (err == -ENOEXEC) /* code that somebody wrote into a file: a JIT's memfd */
                        step(t, o, OBJECT_CODE);
                else
                        fail(t, o, err);
                return;
        }
        o->wait_ns = 0;
        o->object.build_id_len = MIN_OF(info->build_id_len, SYM_BUILD_ID_MAX);
        memcpy(o->object.build_id, info->build_id, o->object.build_id_len);
        object_entry_text(o, info);
        if (info->has_unwind && info->elf_class == ELFCLASS64 && info->machine == OWN_MACHINE) {
                int r = unwind_index_new(t->tables, info->segment, info->n_segments,
                                         o->size + UNWIND_PAGE_MASK, &o->index);
                if (r < 0)
                        o->object.error = (uint32_t)-r;
        }
        o->table_state = o->index ? OBJECT_TABLE_ABSENT : OBJECT_TABLE_NONE;
        step(t, o, OBJECT_READY);
        if (o->index)
                request_table(t, o); /* a walk waits for it, or it would not have been opened */
}

static void read_object(struct object_table *t, struct object_entry *o, int fd, uint32_t root_pid)
{
        char root[32] = "";

        if (root_pid)
                snprintf(root, sizeof(root), "/proc/%u/root", root_pid);
        struct sym_source source = {.path = o->path, .root = root};
        step(t, o, OBJECT_READING);
        o->object.error = 0;
        struct symobj *obj = symclient_open(t->symbols, fd, &source, on_info, o);
        if (o->state != OBJECT_READING)
                return; /* called back already */
        o->object.symbols = obj;
        if (!obj)
                fail(t, o, -ENOMEM);
}

static void submit(struct object_table *t, struct object_entry *o, bool look_only)
{
        struct object_job job = {
                        .id = (uint64_t)o->object.id,
                        .look_only = look_only,
                        .device = o->device,
                        .inode = o->inode,
                        .path = o->path,
        };

        for (uint32_t i = 0; i < ARRAY_SIZE(o->mapper); i++)
                if (o->mapper[i].pid)
                        job.place[job.n_places++] = (struct object_place){
                                        o->mapper[i].pid, o->mapper[i].start, o->mapper[i].end};
        if (o->path[0] == '/') {
                if (o->mapper[0].pid)
                        job.place[job.n_places++] = (struct object_place){.pid = o->mapper[0].pid};
                if (o->mapper[0].ppid)
                        job.place[job.n_places++] = (struct object_place){.pid = o->mapper[0].ppid};
                job.place[job.n_places++] = (struct object_place){0};
        }
        int r = object_opener_submit(t->opener, &job);
        if (look_only)
                o->looking = r == 0;
        else if (r < 0)
                fail(t, o, r);
        else
                step(t, o, OBJECT_OPENING);
}

static void on_looked(struct object_table *t, struct object_entry *o, const struct object_opened *r)
{
        o->looking = false;
        if (r->error == 0 && (r->size != o->size || r->modified_ns != o->modified_ns) &&
            replace(t, o)) /* else out of memory: the old names stand */
                t->stats.changed++;
}

static void on_opened(void *ctx, const struct object_opened *r)
{
        struct object_table *t = ctx;
        struct object_entry *o = object_table_find(t, (uint32_t)r->id);

        if (o && o->looking && r->fd < 0) {
                on_looked(t, o, r);
                return;
        }
        if (!o || o->state != OBJECT_OPENING) {
                if (r->fd >= 0)
                        close(r->fd);
                return;
        }
        if (r->error < 0) {
                fail(t, o, r->error);
                return;
        }
        if (o->object.address_is_offset) {
                /* Frames have left with file offsets in its name. */
                struct object_entry *new = replace(t, o);
                if (!new) {
                        close(r->fd);
                        fail(t, o, -ENOMEM);
                        return;
                }
                step(t, o, OBJECT_FAILED);
                o = new;
        }
        o->size = r->size;
        o->modified_ns = r->modified_ns;
        o->looked_ns = now_monotonic_ns();
        /* Places 0 and 1 are mappings of mapper 0 and 1; what was found by path has mapper 0's root or ours.
         */
        read_object(t, o, r->fd, r->place < 2 && o->mapper[r->place].pid ? o->mapper[r->place].pid : 0);
}

static void open_object(struct object_table *t, struct object_entry *o)
{
        if (object_entry_is_file(o)) {
                submit(t, o, false);
                return;
        }
        int fd = object_vdso_file(&o->size);
        if (fd < 0)
                fail(t, o, fd);
        else
                read_object(t, o, fd, 0);
}

void object_table_mapper(struct object_table *t, struct object_entry *o, const struct object_mapper *m,
                         uint64_t now_ns)
{
        if (!object_entry_is_file(o))
                return;
        if (o->mapper[0].pid != m->pid)
                o->mapper[1] = o->mapper[0];
        o->mapper[0] = *m;
        if (o->state == OBJECT_READY && !o->looking && now_ns - o->looked_ns > LOOK_NS) {
                o->looked_ns = now_ns;
                submit(t, o, true);
        }
}

enum object_answer object_table_need(struct object_table *t, struct object_entry *o, uint64_t now_ns)
{
        if (o->state == OBJECT_NEW || (o->state == OBJECT_FAILED && !o->successor && now_ns > o->retry_ns &&
                                       o->mapper[0].pid && o->object.error == ENOENT))
                open_object(t, o);
        return o->state < OBJECT_READY ? OBJECT_WAIT : OBJECT_HAVE;
}

/* -- life -- */

int object_table_new(struct object_table **ret, struct symclient *symbols, struct unwind_tables *tables,
                     void (*on_step)(void *ctx), void *ctx)
{
        struct object_table *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        t->on_step = on_step;
        t->ctx = ctx;
        t->symbols = symbols;
        t->tables = tables;
        int r = object_opener_new(&t->opener, OPEN_TIMEOUT_MS);
        if (r < 0) {
                free(t);
                return r;
        }
        *ret = t;
        return 0;
}

struct object_table *object_table_free(struct object_table *t)
{
        if (!t)
                return NULL;
        object_opener_free(t->opener);
        for (uint32_t i = 0; i < t->n_slots; i++)
                if (t->slot[i])
                        entry_free(t, t->slot[i]);
        idtable_free(&t->index);
        free(t->slot);
        free(t);
        return NULL;
}

int object_table_fd(const struct object_table *t)
{
        return object_opener_fd(t->opener);
}

void object_table_dispatch(struct object_table *t)
{
        object_opener_dispatch(t->opener, on_opened, t);
}

bool object_table_changed(const struct object_table *t)
{
        return t->changed;
}

void object_table_settled(struct object_table *t)
{
        t->changed = false;
        for (uint32_t i = 0; i < t->n_slots; i++)
                if (t->slot[i])
                        t->slot[i]->republish = false;
}

struct object_entry *object_table_find(struct object_table *t, uint32_t id)
{
        return id && id <= MAX_IDS ? t->by_id[id] : NULL;
}

void object_entry_used(struct object_entry *o, uint64_t now_ns)
{
        o->used_ns = now_ns;
        o->used_tick = o->table->tick;
        if (o->index)
                unwind_index_touch(o->table->tables, o->index);
}

static bool is_short(const struct object_table *t, uint64_t now_ns)
{
        return t->lacked_ns && now_ns < t->lacked_ns + SHORT_NS;
}

static bool can_go(const struct object_table *t, const struct object_entry *o, uint64_t now_ns)
{
        if (o->refs || o->mappings || t->tick - o->used_tick < GRACE_TICKS)
                return false;
        if (o->state == OBJECT_OPENING || o->state == OBJECT_READING || o->looking ||
            o->table_state == OBJECT_TABLE_REQUESTED)
                return false;
        return o->state == OBJECT_NEW || o->state == OBJECT_CODE || o->successor || is_short(t, now_ns) ||
               now_ns - o->used_ns > IDLE_NS;
}

static bool is_lacking(const struct object_entry *o)
{
        return o->state == OBJECT_FAILED && !o->successor && o->mappings && will_pass(o->object.error);
}

/* Its samples come without waiting for it, since it failed: nothing else would ask for it again. */
static bool is_wanted_again(const struct object_entry *o, uint64_t now_ns)
{
        return is_lacking(o) && now_ns > o->retry_ns && now_ns - o->used_ns < MAX_WAIT_NS;
}

/* There may be descriptors again. */
static void hurry(struct object_table *t, uint64_t now_ns)
{
        for (uint32_t i = 0; i < t->n_slots; i++)
                if (t->slot[i] && is_lacking(t->slot[i]))
                        t->slot[i]->retry_ns = MIN_OF(t->slot[i]->retry_ns, now_ns);
}

void object_table_tick(struct object_table *t, uint64_t now_ns)
{
        bool freed = false;

        t->tick++;
        for (uint32_t i = 0; i < t->n_slots; i++) {
                struct object_entry *o = t->slot[i];
                if (!o)
                        continue;
                if (o->table_state == OBJECT_TABLE_LATER && now_ns > o->retry_ns) {
                        unwind_index_unfill(t->tables, o->index);
                        o->table_state = OBJECT_TABLE_ABSENT;
                }
                if (is_wanted_again(o, now_ns))
                        open_object(t, o);
                if (can_go(t, o, now_ns)) {
                        freed |= o->state == OBJECT_READY;
                        entry_free(t, o);
                }
        }
        if (freed && is_short(t, now_ns))
                hurry(t, now_ns);
}

/* Open for the sake of what was sampled of it alone. */
static bool is_past(const struct object_entry *o)
{
        return o->state == OBJECT_READY && !o->mappings && o->refs;
}

void object_table_stats(const struct object_table *t, struct object_table_stats *ret)
{
        uint64_t now = now_monotonic_ns();

        *ret = t->stats;
        ret->stuck = object_opener_stuck(t->opener);
        ret->memory = sizeof(*t) + (uint64_t)t->cap_slots * sizeof(*t->slot);
        for (uint32_t i = 0; i < t->n_slots; i++)
                if (t->slot[i]) {
                        ret->memory += sizeof(struct object_entry) + strlen(t->slot[i]->path) + 1;
                        ret->open += t->slot[i]->state == OBJECT_READY;
                        if (is_past(t->slot[i])) {
                                ret->past++;
                                ret->stale += now - t->slot[i]->used_ns > IDLE_NS;
                        }
                        if (is_lacking(t->slot[i])) {
                                ret->lacking++;
                                ret->lacking_error = t->slot[i]->object.error;
                        }
                }
}
