#include "daemon/unwind_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/unwind_rules.h"
#include "daemon/unwind_shards.h"
#include "daemon/unwind_space.h"

/* Rows are handed out in blocks: small enough that a small object wastes little. */
#define BLOCK_ROWS   256u
#define SHARD_BLOCKS (ABI_SHARD_ROWS / BLOCK_ROWS)
#define SHARD_BYTES  (ABI_SHARD_ROWS * sizeof(uint32_t))

/* Rows that a page of code has on average, with room to spare: to have shards made in time. */
#define PAGE_ROWS 64u

/* A whole disk of objects has some 7,000 rules together: one object that brings more than this is odd, and
 * must not use up the dictionary of all. */
#define MAX_NEW_RULES 4096u

/* No object gets more of the page index than this part of it. */
#define MAX_INDEX_SHARE 4

struct span {
        uint32_t page, first_page, n_pages;
        uint32_t first_chunk, n_chunks;
};

struct chunk {
        uint32_t first_block, n_blocks; /* n_blocks 0: not loaded */
        uint32_t tick;                  /* when it was loaded */
        bool wanted;
};

struct unwind_index {
        struct unwind_index **from, *next; /* list of all: what points here, and where it goes on */
        uint32_t touched;                  /* tick */
        uint32_t rows, n_loaded;
        uint32_t n_spans, n_chunks;
        struct span span[SYM_MAX_SEGMENTS];
        struct chunk chunk[];
};

struct unwind_tables {
        struct unwind_maps maps;
        struct unwind_rules *rules;
        struct unwind_space *blocks, *pages;
        struct unwind_shards *shards;
        uint32_t tick;
        struct unwind_index *first; /* of all */
        struct unwind_tables_stats stats;
};

static uint32_t *block_rows(const struct unwind_tables *t, uint32_t block)
{
        return unwind_shards_rows(t->shards, block / SHARD_BLOCKS) +
               (size_t)(block % SHARD_BLOCKS) * BLOCK_ROWS;
}

static uint64_t page_entry(uint32_t block, uint32_t row, uint32_t n)
{
        return ABI_PAGE(block / SHARD_BLOCKS, block % SHARD_BLOCKS * BLOCK_ROWS + row, n);
}

static void set_page(struct unwind_tables *t, uint32_t page, uint64_t entry)
{
        /* After the rows it points to. */
        __atomic_store_n(&t->maps.pages[page], entry, __ATOMIC_RELEASE);
}

/* Shards that are ready may be used; one more is made before they are full. */
static void use_shards(struct unwind_tables *t)
{
        uint32_t full = unwind_space_used(t->blocks) / SHARD_BLOCKS;

        unwind_space_grow(t->blocks, unwind_shards_ready(t->shards) * SHARD_BLOCKS);
        if (unwind_space_used(t->blocks) % SHARD_BLOCKS > SHARD_BLOCKS / 2)
                unwind_shards_prepare(t->shards, full + 2);
}

/* Block 0 holds the pages that many entries share: row k is a page of one row of kind k. */
static int make_shared_pages(struct unwind_tables *t)
{
        uint32_t block;

        use_shards(t);
        int r = unwind_space_take(t->blocks, 1, &block);
        if (r < 0)
                return r;
        for (uint32_t kind = 0; kind < UNWIND_RULE_FIRST; kind++)
                block_rows(t, block)[kind] = UNWIND_ROW(0, kind);
        return 0;
}

int unwind_tables_new(struct unwind_tables **ret, const struct unwind_maps *maps, uint64_t max_bytes)
{
        struct unwind_tables *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        t->maps = *maps;
        uint64_t shards = MAX_OF(max_bytes / SHARD_BYTES, 1);
        int r = unwind_shards_new(&t->shards, maps->shards_fd, (uint32_t)MIN_OF(shards, maps->n_shards));
        if (r == 0)
                r = unwind_rules_new(&t->rules, maps->rules);
        if (r == 0)
                r = unwind_space_new(&t->blocks, unwind_shards_max(t->shards) * SHARD_BLOCKS, 0,
                                     SHARD_BLOCKS);
        if (r == 0)
                r = unwind_space_new(&t->pages, maps->n_pages, maps->n_pages, 0);
        if (r == 0)
                r = make_shared_pages(t);
        if (r < 0) {
                log_error("Cannot make the first map for unwind tables: %s.", strerror(-r));
                unwind_tables_free(t);
                return r;
        }
        *ret = t;
        return 0;
}

struct unwind_tables *unwind_tables_free(struct unwind_tables *t)
{
        if (!t)
                return NULL;
        while (t->first)
                unwind_index_free(t, t->first);
        unwind_shards_free(t->shards);
        unwind_rules_free(t->rules);
        unwind_space_free(t->blocks);
        unwind_space_free(t->pages);
        free(t);
        return NULL;
}

/* Pages of a segment, no more than the bytes that the file can hold. */
static uint32_t segment_pages(const struct sym_segment *s, uint64_t max_bytes)
{
        uint64_t bytes = MIN_OF(s->memsz, max_bytes);

        if (bytes == 0 || s->vaddr >> 48)
                return 0;
        uint64_t n = ((s->vaddr + bytes - 1) >> UNWIND_PAGE_SHIFT) - (s->vaddr >> UNWIND_PAGE_SHIFT) + 1;
        return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static int take_spans(struct unwind_tables *t, const struct sym_segment *segment, uint32_t n,
                      uint64_t max_bytes, struct unwind_index *x)
{
        uint32_t max_pages = t->maps.n_pages / MAX_INDEX_SHARE;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t pages = segment_pages(&segment[i], max_bytes);
                struct span *s = &x->span[x->n_spans];
                if (!pages)
                        continue;
                if (pages > max_pages)
                        return -ENOSPC;
                int r = unwind_space_take(t->pages, pages, &s->page);
                if (r < 0)
                        return r;
                max_pages -= pages;
                s->n_pages = pages;
                s->first_page = (uint32_t)(segment[i].vaddr >> UNWIND_PAGE_SHIFT);
                s->first_chunk = x->n_chunks;
                s->n_chunks = (pages + UNWIND_CHUNK_PAGES - 1) / UNWIND_CHUNK_PAGES;
                x->n_chunks += s->n_chunks;
                x->n_spans++;
                for (uint32_t p = 0; p < pages; p++)
                        set_page(t, s->page + p, 0);
        }
        return 0;
}

int unwind_index_new(struct unwind_tables *t, const struct sym_segment *segment, uint32_t n,
                     uint64_t max_bytes, struct unwind_index **ret)
{
        uint64_t n_chunks = 0;

        n = MIN_OF(n, SYM_MAX_SEGMENTS);
        for (uint32_t i = 0; i < n; i++)
                n_chunks += segment_pages(&segment[i], max_bytes) / UNWIND_CHUNK_PAGES + 1;
        if (n_chunks > t->maps.n_pages)
                return -ENOSPC;
        struct unwind_index *x = calloc(1, sizeof(*x) + n_chunks * sizeof(x->chunk[0]));
        if (!x)
                return -ENOMEM;
        x->touched = t->tick;
        x->from = &t->first;
        x->next = t->first;
        if (x->next)
                x->next->from = &x->next;
        t->first = x;
        int r = take_spans(t, segment, n, max_bytes, x);
        if (r < 0) {
                unwind_index_free(t, x);
                return r;
        }
        *ret = x;
        return 0;
}

void unwind_index_expect(struct unwind_tables *t, const struct unwind_index *x)
{
        uint64_t rows = (uint64_t)unwind_space_used(t->blocks) * BLOCK_ROWS;

        for (uint32_t i = 0; i < x->n_spans; i++)
                rows += (uint64_t)x->span[i].n_pages * PAGE_ROWS;
        unwind_shards_prepare(t->shards, (uint32_t)MIN_OF(rows / ABI_SHARD_ROWS + 1, ABI_MAX_SHARDS));
}

static struct span *chunk_span(struct unwind_index *x, uint32_t chunk)
{
        uint32_t i = 0;

        while (chunk >= x->span[i].first_chunk + x->span[i].n_chunks)
                i++;
        return &x->span[i];
}

/* Page entries of a chunk: [*first, *first + n) of the index, the span's pages from *page on. */
static uint32_t chunk_pages(const struct span *s, uint32_t chunk, uint32_t *ret_page)
{
        *ret_page = (chunk - s->first_chunk) * UNWIND_CHUNK_PAGES;
        return MIN_OF(UNWIND_CHUNK_PAGES, s->n_pages - *ret_page);
}

static void set_chunk_pages(struct unwind_tables *t, struct unwind_index *x, uint32_t chunk, uint64_t entry)
{
        const struct span *s = chunk_span(x, chunk);
        uint32_t page, n = chunk_pages(s, chunk, &page);

        for (uint32_t i = 0; i < n; i++)
                set_page(t, s->page + page + i, entry);
}

static void drop_rows(struct unwind_tables *t, struct unwind_index *x, struct chunk *c)
{
        if (!c->n_blocks)
                return;
        unwind_space_give(t->blocks, c->first_block, c->n_blocks);
        x->rows -= c->n_blocks * BLOCK_ROWS;
        c->n_blocks = 0;
        if (--x->n_loaded == 0)
                t->stats.tables--;
}

static void evict_chunk(struct unwind_tables *t, struct unwind_index *x, uint32_t chunk)
{
        if (!x->chunk[chunk].n_blocks)
                return;
        set_chunk_pages(t, x, chunk, 0);
        drop_rows(t, x, &x->chunk[chunk]);
        t->stats.evictions++;
}

struct unwind_index *unwind_index_free(struct unwind_tables *t, struct unwind_index *x)
{
        if (!x)
                return NULL;
        for (uint32_t i = 0; i < x->n_chunks; i++)
                drop_rows(t, x, &x->chunk[i]);
        for (uint32_t i = 0; i < x->n_spans; i++)
                unwind_space_give(t->pages, x->span[i].page, x->span[i].n_pages);
        *x->from = x->next;
        if (x->next)
                x->next->from = x->from;
        free(x);
        return NULL;
}

static const struct span *find_span(const struct unwind_index *x, uint64_t address)
{
        uint64_t page = address >> UNWIND_PAGE_SHIFT;

        for (uint32_t i = 0; i < x->n_spans; i++)
                if (page - x->span[i].first_page < x->span[i].n_pages)
                        return &x->span[i];
        return NULL;
}

bool unwind_index_place(const struct unwind_index *x, uint64_t address, struct unwind_place *ret)
{
        const struct span *s = find_span(x, address);

        if (!s)
                return false;
        *ret = (struct unwind_place){.page = s->page, .n_pages = s->n_pages, .first_page = s->first_page};
        return true;
}

/* What walks in the kernel touched is known when they are drained: an object is cold when no drain has told
 * of it for so many ticks. */
#define COLD_TICKS 2

/* Of the other objects the one not seen for longest; NULL when none is cold. */
static struct unwind_index *coldest(struct unwind_tables *t, const struct unwind_index *but)
{
        struct unwind_index *best = NULL;

        for (struct unwind_index *x = t->first; x; x = x->next)
                if (x != but && x->n_loaded && t->tick - x->touched >= COLD_TICKS &&
                    (!best || t->tick - x->touched > t->tick - best->touched))
                        best = x;
        return best;
}

/* Of the other objects the one with most rows, if it has twice as many as this one would have with n blocks
 * more: when all are in use, a small object does not go without for the sake of a large one. */
static struct unwind_index *largest(struct unwind_tables *t, const struct unwind_index *but, uint32_t n)
{
        struct unwind_index *best = NULL;
        uint32_t most = 2 * (but->rows + n * BLOCK_ROWS);

        for (struct unwind_index *x = t->first; x; x = x->next)
                if (x != but && x->rows > most) {
                        best = x;
                        most = x->rows;
                }
        return best;
}

/* Evicts the chunk of an object that was loaded longest ago, at least min_age ticks. Returns its blocks; 0:
 * there is none. */
static uint32_t evict_oldest(struct unwind_tables *t, struct unwind_index *x, uint32_t min_age)
{
        uint32_t oldest = UINT32_MAX;

        for (uint32_t i = 0; i < x->n_chunks; i++)
                if (x->chunk[i].n_blocks && t->tick - x->chunk[i].tick >= min_age &&
                    (oldest == UINT32_MAX || t->tick - x->chunk[i].tick > t->tick - x->chunk[oldest].tick))
                        oldest = i;
        if (oldest == UINT32_MAX)
                return 0;
        uint32_t n = x->chunk[oldest].n_blocks;
        evict_chunk(t, x, oldest);
        return n;
}

/* Room for n blocks by eviction: of what others have not used for longest, then of what is largest, then of
 * the object's own chunks. More than asked is evicted, because the wait that follows is long. */
static bool make_room(struct unwind_tables *t, struct unwind_index *x, uint32_t n)
{
        uint32_t freed = 0, more, enough = MAX_OF(n * 2, unwind_shards_max(t->shards) * SHARD_BLOCKS / 8);
        uint32_t before = unwind_space_waiting(t->blocks);
        struct unwind_index *victim;

        while (freed < enough && (victim = coldest(t, x)))
                freed += evict_oldest(t, victim, 0);
        while (freed < n * 2 && (victim = largest(t, x, n)))
                freed += evict_oldest(t, victim, 0);
        while (freed < n && (more = evict_oldest(t, x, 1)))
                freed += more;
        if (!freed && !before)
                return false;
        if (unwind_shards_grace(t->shards) == 0)
                unwind_space_quiet(t->blocks);
        return true;
}

/* May evict when the chunk is wanted; what is only nice to have leaves a quarter free. */
static int take_blocks(struct unwind_tables *t, struct unwind_index *x, bool wanted, uint32_t n,
                       uint32_t *ret_first)
{
        uint32_t all = unwind_shards_max(t->shards) * SHARD_BLOCKS, ready = unwind_shards_ready(t->shards);

        if (!wanted && unwind_space_used(t->blocks) + n > all - all / 4)
                return -ENOSPC;
        use_shards(t);
        int r = unwind_space_take(t->blocks, n, ret_first);
        if (r < 0 && unwind_shards_wait(t->shards, ready + 1) > ready) {
                use_shards(t);
                r = unwind_space_take(t->blocks, n, ret_first);
        }
        if (r < 0 && wanted && make_room(t, x, n))
                r = unwind_space_take(t->blocks, n, ret_first);
        return r;
}

/* Rows [*first, *first + n) of the worker's table for one page of the object; 0 when it has none. */
static uint32_t table_rows(const struct sym_table *table, uint32_t elf_page, uint32_t *ret_first)
{
        uint32_t i = elf_page - table->first_page;

        if (elf_page < table->first_page || i >= table->n_pages)
                return 0;
        *ret_first = table->page_start[i];
        return table->page_start[i + 1] - table->page_start[i];
}

/* 0; -ENOSPC. */
static int load_chunk(struct unwind_tables *t, struct unwind_index *x, uint32_t chunk,
                      const struct sym_table *table, const uint16_t *rule_id)
{
        struct chunk *c = &x->chunk[chunk];
        const struct span *s = chunk_span(x, chunk);
        uint32_t page, n_pages = chunk_pages(s, chunk, &page), total = 0, from = 0, block, n;

        for (uint32_t i = 0; i < n_pages; i++)
                total += table_rows(table, s->first_page + page + i, &from);
        if (total) {
                uint32_t n_blocks = (total + BLOCK_ROWS - 1) / BLOCK_ROWS;
                int r = take_blocks(t, x, c->wanted, n_blocks, &block);
                if (r < 0)
                        return r;
                c->first_block = block;
                c->n_blocks = n_blocks;
                c->tick = t->tick;
                x->rows += n_blocks * BLOCK_ROWS;
                if (x->n_loaded++ == 0)
                        t->stats.tables++;
        }
        c->wanted = false;
        for (uint32_t i = 0, row = 0; i < n_pages; i++) {
                n = table_rows(table, s->first_page + page + i, &from);
                if (!n) {
                        set_page(t, s->page + page + i, page_entry(0, UNWIND_NONE, 1));
                        continue;
                }
                uint32_t *to = block_rows(t, block) + row;
                for (uint32_t k = 0; k < n; k++) {
                        uint32_t r = table->row[from + k];
                        to[k] = UNWIND_ROW(UNWIND_ROW_OFFSET(r), rule_id[UNWIND_ROW_RULE(r)]);
                }
                set_page(t, s->page + page + i, page_entry(block, row, n));
                row += n;
        }
        return 0;
}

/* The table's own rule numbers → those of the dictionary, for every value a row can hold. */
static uint16_t *number_rules(struct unwind_tables *t, const struct sym_table *table)
{
        uint16_t *id = malloc(ABI_MAX_RULES * sizeof(*id));
        uint32_t budget = MAX_NEW_RULES;

        if (!id)
                return NULL;
        for (uint32_t i = 0; i < ABI_MAX_RULES; i++) {
                id[i] = UNWIND_UNSUPPORTED;
                if (i < UNWIND_RULE_FIRST) {
                        id[i] = (uint16_t)i;
                } else if (i - UNWIND_RULE_FIRST < table->n_rules) {
                        id[i] = unwind_rules_id(t->rules, &table->rule[i - UNWIND_RULE_FIRST], &budget);
                        t->stats.no_rules += id[i] == UNWIND_UNSUPPORTED;
                }
        }
        return id;
}

int unwind_index_load(struct unwind_tables *t, struct unwind_index *x, const struct sym_table *table)
{
        _cleanup_free_ uint16_t *rule_id = number_rules(t, table);
        bool all = true;

        if (!rule_id)
                return -ENOMEM;
        x->touched = t->tick;
        for (int wanted = 1; wanted >= 0; wanted--)
                for (uint32_t i = 0; i < x->n_chunks; i++) {
                        if (x->chunk[i].n_blocks || x->chunk[i].wanted != wanted)
                                continue;
                        if (load_chunk(t, x, i, table, rule_id) == -ENOSPC) {
                                all = all && !wanted;
                                t->stats.no_room += wanted != 0;
                                if (!wanted)
                                        return all;
                        }
                }
        return all;
}

void unwind_index_fill(struct unwind_tables *t, struct unwind_index *x, enum unwind_kind kind)
{
        for (uint32_t i = 0; i < x->n_chunks; i++)
                if (!x->chunk[i].n_blocks) {
                        set_chunk_pages(t, x, i, page_entry(0, kind, 1));
                        x->chunk[i].wanted = false;
                }
}

void unwind_index_unfill(struct unwind_tables *t, struct unwind_index *x)
{
        for (uint32_t i = 0; i < x->n_chunks; i++)
                if (!x->chunk[i].n_blocks)
                        set_chunk_pages(t, x, i, 0);
}

static uint64_t entry_of(const struct unwind_tables *t, const struct span *s, uint64_t address)
{
        return t->maps.pages[s->page + (uint32_t)(address >> UNWIND_PAGE_SHIFT) - s->first_page];
}

bool unwind_index_want(struct unwind_tables *t, struct unwind_index *x, uint64_t address)
{
        const struct span *s = find_span(x, address);

        if (!s || entry_of(t, s, address))
                return false;
        uint32_t page = (uint32_t)(address >> UNWIND_PAGE_SHIFT) - s->first_page;
        x->chunk[s->first_chunk + page / UNWIND_CHUNK_PAGES].wanted = true;
        return true;
}

int unwind_index_rule(const struct unwind_tables *t, const struct unwind_index *x, uint64_t address,
                      struct unwind_rule *ret)
{
        const struct span *s = find_span(x, address);

        if (!s)
                return -ENOENT;
        uint64_t entry = entry_of(t, s, address);
        if (!entry)
                return -EAGAIN;
        const uint32_t *row = unwind_shards_rows(t->shards, ABI_PAGE_SHARD(entry)) + ABI_PAGE_FIRST(entry);
        uint32_t offset = (uint32_t)address & UNWIND_PAGE_MASK, low = 0;
        for (uint32_t n = ABI_PAGE_ROWS(entry); n > 1;) {
                uint32_t half = n / 2;
                if (UNWIND_ROW_OFFSET(row[low + half]) <= offset)
                        low += half;
                n -= half;
        }
        *ret = *unwind_rules_get(t->rules, UNWIND_ROW_RULE(row[low]));
        return 0;
}

void unwind_index_touch(struct unwind_tables *t, struct unwind_index *x)
{
        x->touched = t->tick;
}

uint32_t unwind_index_rows(const struct unwind_index *x)
{
        return x->rows;
}

void unwind_tables_tick(struct unwind_tables *t)
{
        t->tick++;
        unwind_space_tick(t->blocks);
        unwind_space_tick(t->pages);
}

void unwind_tables_stats(const struct unwind_tables *t, struct unwind_tables_stats *ret)
{
        *ret = t->stats;
        ret->shards = unwind_shards_ready(t->shards);
        ret->rules = unwind_rules_n(t->rules);
        ret->pages = unwind_space_used(t->pages);
        ret->rows = (uint64_t)unwind_space_used(t->blocks) * BLOCK_ROWS;
        ret->max_rows = (uint64_t)unwind_shards_max(t->shards) * ABI_SHARD_ROWS;
}
