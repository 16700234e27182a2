/* When the cache is asked and what is put into it. ELF objects only: JITs make other code each time. */
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "symbolizer/client_internal.h"

#define FLUSH_AFTER    4096               /* new results of one object; the rest when it is closed */
#define TABLE_MIN_SIZE ((size_t)16 << 10) /* smaller tables are made as fast as they are read */

/* Another build of the worker may make other names of the same file. */
static uint64_t maker_of(const struct symclient *c)
{
        struct stat st = {};

        if (fstat(c->exe_fd, &st) < 0)
                return 0;
        return hash_u64((uint64_t)st.st_size ^ (uint64_t)st.st_mtim.tv_nsec, (uint64_t)st.st_mtim.tv_sec);
}

int client_cache_new(struct symclient *c, const struct symclient_options *options)
{
        if (!options || !options->cache_dir)
                return 0;
        return cache_new(&c->cache, options->cache_dir, options->cache_max, maker_of(c));
}

void symclient_make_room(struct symclient *c)
{
        if (c->cache)
                cache_make_room(c->cache);
}

void client_cache_free(struct symclient *c)
{
        c->cache = cache_free(c->cache);
}

/* An object without a build ID is known by its file, which is one of its states on this host; marked by a
 * length that no build ID has. */
static void key_by_file(struct cache_key *k, const struct stat *st)
{
        const uint64_t file[] = {st->st_dev,
                                 st->st_ino,
                                 (uint64_t)st->st_size,
                                 (uint64_t)st->st_mtim.tv_sec,
                                 (uint64_t)st->st_mtim.tv_nsec,
                                 (uint64_t)st->st_ctim.tv_sec,
                                 (uint64_t)st->st_ctim.tv_nsec};
        XXH128_canonical_t hash;

        XXH128_canonicalFromHash(&hash, XXH3_128bits(file, sizeof(file)));
        memcpy(k->build_id, hash.digest, sizeof(hash.digest));
        k->build_id[sizeof(hash.digest)] = 'f';
        k->build_id_len = sizeof(hash.digest) + 1;
}

static struct cache_key key_of(const struct symobj *o)
{
        struct cache_key k = {.build_id_len = o->info.build_id_len, .owner = o->st.st_uid};

        memcpy(k.build_id, o->info.build_id, sizeof(k.build_id));
        if (k.build_id_len == 0)
                key_by_file(&k, &o->st);
        return k;
}

static bool is_kept(const struct symclient *c, const struct symobj *o)
{
        return c->cache && o->ready && !o->is_jit;
}

static struct cache_object *open_cached(struct symclient *c, struct symobj *o)
{
        struct cache_key key = key_of(o);

        if (!o->cached && cache_open(c->cache, &key, o->place, o->info.has_debug, &o->cached) < 0)
                return NULL;
        return o->cached;
}

void client_cache_close(struct symclient *c, struct symobj *o)
{
        if (c->cache)
                o->cached = cache_close(c->cache, o->cached);
}

static bool look_up_table(struct symclient *c, struct request *r)
{
        struct cache_key key = key_of(r->obj);
        struct buf b = {};

        if (cache_load_table(c->cache, &key, &b) < 0 || !table_is_sound(&b)) {
                buf_free(&b);
                c->stats.cache_misses++;
                return false;
        }
        r->answer = b;
        c->stats.cache_hits++;
        request_finish(c, r, 0);
        return true;
}

static bool look_up_names(struct symclient *c, struct request *r)
{
        struct cache_object *o = open_cached(c, r->obj);
        uint32_t n_miss = 0;

        for (uint32_t i = 0; i < r->n; i++) {
                if (o && cache_find(o, r->address[i], &r->names) == 1)
                        r->slot[i] = r->names.n_results - 1;
                else
                        r->miss[n_miss++] = i;
        }
        r->n_miss = n_miss;
        c->stats.cache_hits += r->n - n_miss;
        c->stats.cache_misses += n_miss;
        if (n_miss > 0)
                return false;
        request_finish(c, r, 0);
        return true;
}

bool client_cache_look_up(struct symclient *c, struct request *r)
{
        if (r->looked_up || !is_kept(c, r->obj))
                return false;
        r->looked_up = true;
        if (r->kind == REQUEST_TABLE)
                return look_up_table(c, r);
        return r->kind == REQUEST_NAMES && look_up_names(c, r);
}

void client_cache_add(struct symclient *c, struct symobj *o, uint64_t address, const struct names *from,
                      uint32_t result, enum name_quality quality)
{
        if (!is_kept(c, o) || !open_cached(c, o))
                return;
        if (cache_add(o->cached, address, from, result, quality) == 0 &&
            cache_n_added(o->cached) >= FLUSH_AFTER)
                cache_flush(c->cache, o->cached); /* what cannot be written is looked up again */
}

void client_cache_add_table(struct symclient *c, const struct request *r)
{
        struct cache_key key;

        if (!is_kept(c, r->obj) || r->answer.len < TABLE_MIN_SIZE)
                return;
        key = key_of(r->obj);
        cache_store_table(c->cache, &key, r->answer.data, r->answer.len);
}
