/* Format of a file of names, in host byte order, each part aligned to 8 bytes:
 *
 *   struct cache_header    magic, version, maker, checksum (XXH64) of all that follows
 *   uint64_t address[n]    ascending
 *   uint32_t first[n + 1]  frames of an address: frame[first[i]] up to frame[first[i + 1]]
 *   struct name_frame frame[n_frames]
 *   char string[]          NUL-terminated; the first is empty
 *
 * and of a table: the header and the bytes. */
#include "symbolizer/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/io.h"

#define CACHE_MAGIC   0x3168636163667270ull /* "prfcach1" */
#define CACHE_VERSION 1u
#define DEFAULT_MAX   ((uint64_t)256 << 20)
#define MAX_ADDRESSES (1u << 20) /* of one object */
#define MAX_FILES     65536
#define MAX_TABLE     ((size_t)256 << 20)
#define KEEP_PERCENT  90 /* of max, when files are deleted */
#define SPARE_SHARE   8  /* of the file system are left to others, at most so much: */
#define SPARE_BYTES   ((uint64_t)64 << 20)
#define SPARE_FILES   64
#define TOUCH_AFTER_S 3600
#define POOR_MAX_S    (7 * 86400) /* names without debug information are looked for anew after a week */

struct cache_header {
        uint64_t magic;
        uint32_t version, quality;
        uint64_t maker, place, time_s, checksum;
        uint32_t n, n_frames, n_strings, reserved;
};

struct cache {
        int dir;
        uint64_t max, bytes, maker;
};

struct cache_object {
        char name[2 * SYM_BUILD_ID_MAX + 32];
        uint64_t place;
        const struct cache_header *map; /* NULL: nothing stored */
        size_t map_size;
        const uint64_t *address;
        const uint32_t *first;
        struct names stored; /* frames and strings point into the map; not to be freed */
        uint64_t *added;     /* addresses */
        uint32_t n_added, cap_added;
        struct names names; /* of the added */
        enum name_quality quality;
};

static void name_file(char *ret, size_t size, const struct cache_key *key, const char *kind)
{
        char id[BUILD_ID_TEXT_MAX];

        build_id_text(key->build_id, key->build_id_len, id);
        snprintf(ret, size, "%s.%u.%s", id, (unsigned)key->owner, kind);
}

static uint64_t now_s(void)
{
        return now_realtime_ns() / NSEC_PER_SEC;
}

/* -- size -- */

struct file {
        char *name;
        uint64_t size;
        int64_t mtime;
};

static int list_files(const struct cache *c, struct file **ret, uint32_t *ret_n)
{
        _cleanup_free_ struct file *files = NULL;
        int fd = openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        uint32_t n = 0, cap = 0;
        struct dirent *e;
        struct stat st;

        if (!d) {
                int r = -errno;

                if (fd >= 0)
                        close(fd);
                return r;
        }
        while ((e = readdir(d)) && n < MAX_FILES) {
                if (e->d_name[0] == '.' || fstatat(c->dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                    !S_ISREG(st.st_mode))
                        continue;
                if (n == cap) {
                        struct file *p = reallocarray(files, cap ? 2 * cap : 256, sizeof(*p));

                        if (!p)
                                break;
                        files = p;
                        cap = cap ? 2 * cap : 256;
                }
                files[n] = (struct file){strdup(e->d_name), (uint64_t)st.st_size, st.st_mtim.tv_sec};
                if (files[n].name)
                        n++;
        }
        closedir(d);
        *ret = TAKE_PTR(files);
        *ret_n = n;
        return 0;
}

static int older_first(const void *a, const void *b)
{
        const struct file *x = a, *y = b;

        return (x->mtime > y->mtime) - (x->mtime < y->mtime);
}

/* What others should find free on the file system and do not: windows are worth more than names, which can
 * be made again. UINT64_MAX: not bytes, but inodes. */
static uint64_t room_lacking(const struct cache *c)
{
        struct statvfs v;

        if (fstatvfs(c->dir, &v) < 0)
                return 0;
        if (v.f_files && v.f_favail < MIN_OF((uint64_t)SPARE_FILES, v.f_files / SPARE_SHARE))
                return UINT64_MAX;
        uint64_t free_now = v.f_bavail * v.f_frsize,
                 spare = MIN_OF((uint64_t)SPARE_BYTES, v.f_blocks * v.f_frsize / SPARE_SHARE);
        return free_now < spare ? spare - free_now : 0;
}

/* Counts, and deletes the files that were not used for longest when there is too much. */
static void keep_size(struct cache *c)
{
        _cleanup_free_ struct file *files = NULL;
        uint64_t total = 0, lacking = room_lacking(c), target;
        uint32_t n = 0;

        if (list_files(c, &files, &n) < 0)
                return;
        for (uint32_t i = 0; i < n; i++)
                total += files[i].size;
        target = total > c->max ? c->max / 100 * KEEP_PERCENT : total;
        target -= MIN_OF(target, lacking);
        if (total > target) {
                qsort(files, n, sizeof(*files), older_first);
                for (uint32_t i = 0; i < n && total > target; i++)
                        if (unlinkat(c->dir, files[i].name, 0) == 0)
                                total -= files[i].size;
        }
        for (uint32_t i = 0; i < n; i++)
                free(files[i].name);
        c->bytes = total;
}

int cache_new(struct cache **ret, const char *dir, uint64_t max, uint64_t maker)
{
        struct cache *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        c->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (c->dir < 0) {
                int r = -errno;

                free(c);
                return r;
        }
        c->max = max ? max : DEFAULT_MAX;
        c->maker = maker;
        keep_size(c);
        *ret = c;
        return 0;
}

struct cache *cache_free(struct cache *c)
{
        if (c) {
                close(c->dir);
                free(c);
        }
        return NULL;
}

void cache_make_room(struct cache *c)
{
        if (c->bytes && room_lacking(c))
                keep_size(c);
}

uint64_t cache_bytes(const struct cache *c)
{
        return c->bytes;
}

/* -- files -- */

static bool header_is_ours(const struct cache *c, const struct cache_header *h)
{
        return h->magic == CACHE_MAGIC && h->version == CACHE_VERSION && h->maker == c->maker;
}

/* Least recently used is by modification time, which reading moves on, now and then. */
static void touch(int fd, const struct stat *st)
{
        struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};

        if ((uint64_t)st->st_mtim.tv_sec + TOUCH_AFTER_S < now_s())
                futimens(fd, now);
}

static int write_file(struct cache *c, const char *name, struct cache_header *h, const struct buf *body)
{
        static const char temporary[] = ".new";

        if (room_lacking(c))
                return -ENOSPC;
        _cleanup_close_ int fd = openat(c->dir, temporary,
                                        O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r;

        if (fd < 0)
                return -errno;
        h->magic = CACHE_MAGIC;
        h->version = CACHE_VERSION;
        h->maker = c->maker;
        h->time_s = now_s();
        h->checksum = XXH64(body->data, body->len, 0);
        r = write_all(fd, h, sizeof(*h));
        if (r == 0)
                r = write_all(fd, body->data, body->len);
        /* Not synced: after a crash of the machine the checksum tells. */
        if (r == 0 && renameat(c->dir, temporary, c->dir, name) < 0)
                r = -errno;
        if (r < 0) {
                unlinkat(c->dir, temporary, 0);
                return r;
        }
        c->bytes += sizeof(*h) + body->len;
        if (c->bytes > c->max)
                keep_size(c);
        return 0;
}

/* -- names -- */

static bool first_is_sound(const uint32_t *first, uint32_t n, uint32_t n_frames)
{
        if (first[0] != 0 || first[n] != n_frames)
                return false;
        for (uint32_t i = 0; i < n; i++)
                if (first[i] > first[i + 1] || first[i + 1] - first[i] > SYM_MAX_INLINE)
                        return false;
        return true;
}

/* Points into the map, all of it checked. */
static bool understand(struct cache_object *o)
{
        const struct cache_header *h = o->map;
        size_t left = o->map_size - sizeof(*h), first_size = ((size_t)h->n + 1) * sizeof(uint32_t);
        const char *p = (const char *)(h + 1);

        if (h->n > MAX_ADDRESSES ||
            left != (uint64_t)h->n * sizeof(uint64_t) + first_size +
                                            (uint64_t)h->n_frames * sizeof(struct name_frame) +
                                            h->n_strings ||
            XXH64(p, left, 0) != h->checksum)
                return false;
        o->address = (const uint64_t *)p;
        o->first = (const uint32_t *)(o->address + h->n);
        o->stored = (struct names){
                        .frame = (struct name_frame *)(uintptr_t)(p + h->n * sizeof(uint64_t) + first_size),
                        .n_frames = h->n_frames,
        };
        o->stored.strings.data = (char *)(o->stored.frame + h->n_frames);
        o->stored.strings.len = h->n_strings;
        return first_is_sound(o->first, h->n, h->n_frames) && names_are_sound(&o->stored);
}

static void unmap(struct cache_object *o)
{
        if (o->map)
                munmap((void *)(uintptr_t)o->map, o->map_size);
        o->map = NULL;
        o->map_size = 0;
}

static bool still_counts(const struct cache_header *h, uint64_t place, bool has_debug)
{
        if (h->quality == NAMES_FROM_DWARF)
                return true;
        return !has_debug && h->place == place && h->time_s <= now_s() && now_s() - h->time_s < POOR_MAX_S;
}

static void map_file(struct cache *c, struct cache_object *o, bool has_debug)
{
        _cleanup_close_ int fd = openat(c->dir, o->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        void *p;

        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < sizeof(*o->map))
                return;
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
                return;
        o->map = p;
        o->map_size = (size_t)st.st_size;
        if (!header_is_ours(c, o->map) || !still_counts(o->map, o->place, has_debug) || !understand(o)) {
                unmap(o);
                return;
        }
        o->quality = (enum name_quality)o->map->quality;
        touch(fd, &st);
}

int cache_open(struct cache *c, const struct cache_key *key, uint64_t place, bool has_debug,
               struct cache_object **ret)
{
        struct cache_object *o;

        if (key->build_id_len == 0)
                return -ENOENT;
        o = calloc(1, sizeof(*o));
        if (!o)
                return -ENOMEM;
        name_file(o->name, sizeof(o->name), key, "names");
        o->place = place;
        map_file(c, o, has_debug);
        *ret = o;
        return 0;
}

struct cache_object *cache_close(struct cache *c, struct cache_object *o)
{
        if (!o)
                return NULL;
        cache_flush(c, o);
        unmap(o);
        names_free(&o->names);
        free(o->added);
        free(o);
        return NULL;
}

static bool find_stored(const struct cache_object *o, uint64_t address, uint32_t *ret)
{
        uint32_t low = 0, high = o->map ? o->map->n : 0;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (o->address[middle] < address)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (!o->map || low == o->map->n || o->address[low] != address)
                return false;
        *ret = low;
        return true;
}

int cache_find(const struct cache_object *o, uint64_t address, struct names *into)
{
        uint32_t i;
        int r;

        if (!find_stored(o, address, &i))
                return 0;
        r = names_copy_frames(into, &o->stored, o->first[i], o->first[i + 1] - o->first[i]);
        return r < 0 ? r : 1;
}

int cache_add(struct cache_object *o, uint64_t address, const struct names *from, uint32_t result,
              enum name_quality quality)
{
        int r;

        if (quality > o->quality) { /* what was known is not worth keeping */
                unmap(o);
                names_free(&o->names);
                o->n_added = 0;
                o->quality = quality;
        }
        if (quality < o->quality)
                return 0; /* its debug information has gone, or failed; not for good, perhaps */
        if (o->n_added + (o->map ? o->map->n : 0) >= MAX_ADDRESSES)
                return -E2BIG;
        if (o->n_added == o->cap_added) {
                uint32_t cap = o->cap_added ? 2 * o->cap_added : 64;
                uint64_t *p = reallocarray(o->added, cap, sizeof(*p));

                if (!p)
                        return -ENOMEM;
                o->added = p;
                o->cap_added = cap;
        }
        r = names_copy(&o->names, from, result);
        if (r < 0)
                return r;
        o->added[o->n_added++] = address;
        return 0;
}

uint32_t cache_n_added(const struct cache_object *o)
{
        return o->n_added;
}

struct place { /* of a result, while a file is written */
        uint64_t address;
        uint32_t added; /* index, or what is stored: UINT32_MAX */
        uint32_t index;
};

static int by_address(const void *a, const void *b)
{
        const struct place *x = a, *y = b;

        return (x->address > y->address) - (x->address < y->address);
}

static int merge(const struct cache_object *o, struct place *p, uint32_t n, struct buf *body,
                 struct cache_header *h)
{
        _cleanup_names_ struct names all = {};
        uint32_t first = 0, kept = 0;
        int r = 0;

        qsort(p, n, sizeof(*p), by_address);
        for (uint32_t i = 0; i < n; i++)
                if (kept == 0 || p[kept - 1].address != p[i].address)
                        p[kept++] = p[i];
        for (uint32_t i = 0; i < kept; i++)
                buf_add(body, &p[i].address, sizeof(p[i].address));
        for (uint32_t i = 0; i < kept && r == 0; i++) {
                buf_add(body, &first, sizeof(first));
                r = p[i].added != UINT32_MAX
                                    ? names_copy(&all, &o->names, p[i].added)
                                    : names_copy_frames(&all, &o->stored, o->first[p[i].index],
                                                        o->first[p[i].index + 1] - o->first[p[i].index]);
                first = all.n_frames;
        }
        buf_add(body, &first, sizeof(first));
        if (all.n_frames > 0)
                buf_add(body, all.frame, all.n_frames * sizeof(*all.frame));
        if (all.strings.len > 0)
                buf_add(body, all.strings.data, all.strings.len);
        *h = (struct cache_header){
                        .quality = o->quality,
                        .place = o->place,
                        .n = kept,
                        .n_frames = all.n_frames,
                        .n_strings = (uint32_t)all.strings.len,
        };
        return r < 0 ? r : buf_error(body);
}

int cache_flush(struct cache *c, struct cache_object *o)
{
        _cleanup_free_ struct place *p = NULL;
        _cleanup_buf_ struct buf body = {};
        uint32_t stored = o->map ? o->map->n : 0, n = 0;
        struct cache_header h;
        int r;

        if (o->n_added == 0)
                return 0;
        p = malloc((stored + o->n_added) * sizeof(*p));
        if (!p)
                return -ENOMEM;
        for (uint32_t i = 0; i < o->n_added; i++)
                p[n++] = (struct place){o->added[i], i, 0};
        for (uint32_t i = 0; i < stored; i++)
                p[n++] = (struct place){o->address[i], UINT32_MAX, i};
        r = merge(o, p, n, &body, &h);
        if (r == 0)
                r = write_file(c, o->name, &h, &body);
        unmap(o);
        names_free(&o->names);
        o->n_added = 0;
        if (r == 0)
                map_file(c, o, false);
        return r;
}

/* -- tables -- */

int cache_load_table(struct cache *c, const struct cache_key *key, struct buf *ret)
{
        char name[2 * SYM_BUILD_ID_MAX + 32];
        _cleanup_close_ int fd = -1;
        struct cache_header h;
        size_t before = ret->len;
        struct stat st;
        int r;

        if (key->build_id_len == 0)
                return -ENOENT;
        name_file(name, sizeof(name), key, "unwind");
        fd = openat(c->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -ENOENT;
        r = pread_all(fd, &h, sizeof(h), 0);
        if (r < 0 || !header_is_ours(c, &h))
                return -ENOENT;
        if (lseek(fd, sizeof(h), SEEK_SET) < 0 || read_fd(fd, MAX_TABLE, ret) < 0)
                return -ENOENT;
        if (XXH64(ret->data + before, ret->len - before, 0) != h.checksum) {
                ret->len = before;
                return -ENOENT;
        }
        touch(fd, &st);
        return 0;
}

int cache_store_table(struct cache *c, const struct cache_key *key, const void *data, size_t n)
{
        char name[2 * SYM_BUILD_ID_MAX + 32];
        const struct buf body = {.data = (char *)(uintptr_t)data, .len = n};
        struct cache_header h = {};

        if (key->build_id_len == 0)
                return -ENOENT;
        name_file(name, sizeof(name), key, "unwind");
        return write_file(c, name, &h, &body);
}
