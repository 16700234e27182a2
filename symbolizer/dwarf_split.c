#include "symbolizer/dwarf_split.h"

/* Sections of a package's rows: DWARF 5, section 7.3.5.3; version 2 is the GNU form before it
 * (https://gcc.gnu.org/wiki/DebugFissionDWP). The numbers used here mean the same in both, but for 8. */
enum { SECT_INFO = 1, SECT_ABBREV = 3, SECT_STR_OFFSETS = 6, SECT_RNGLISTS = 8 };

#define MAX_SECTIONS 16 /* columns of a package's table */

struct package {
        struct dwarf_file file; /* sections of all units; its own unit list stays empty */
        struct span hashes, rows, offsets, sizes;
        uint32_t version, n_columns, n_units, n_slots;
        uint32_t column[MAX_SECTIONS];
};

struct split_file { /* one split unit's sections */
        struct split_file *next;
        struct dwarf_file file;
};

struct dwarf_split {
        struct dwarf_budget *budget;
        dwarf_dwo_fn find_dwo;
        void *ctx;
        struct package package;
        bool has_package;
        struct split_file *files;
        uint32_t next_serial;
};

#define FIRST_SERIAL 16 /* lower ones are the object's and the alternate file's */

static bool take(struct span *from, uint64_t n, struct span *ret)
{
        if (n > from->size)
                return false;
        *ret = (struct span){from->data, n};
        from->data += n;
        from->size -= n;
        return true;
}

/* The header of .debug_cu_index and its four tables. */
static bool read_index(struct package *p, struct span bytes)
{
        struct dwarf_cursor c = dwarf_cursor_at(bytes, 0);
        struct span columns;
        uint64_t cells;

        p->version = cursor_u16(&c); /* 32 bits in version 2, then 16 and 16 of padding */
        cursor_u16(&c);
        p->n_columns = cursor_u32(&c);
        p->n_units = cursor_u32(&c);
        p->n_slots = cursor_u32(&c);
        if (c.bad || (p->version != 2 && p->version != 5) || p->n_columns == 0 ||
            p->n_columns > MAX_SECTIONS || (p->n_slots & (p->n_slots - 1)))
                return false;
        bytes = (struct span){c.p, cursor_left(&c)};
        cells = (uint64_t)p->n_units * p->n_columns;
        if (!take(&bytes, 8ull * p->n_slots, &p->hashes) || !take(&bytes, 4ull * p->n_slots, &p->rows) ||
            !take(&bytes, 4ull * p->n_columns, &columns) || !take(&bytes, 4 * cells, &p->offsets) ||
            !take(&bytes, 4 * cells, &p->sizes))
                return false;
        for (uint32_t i = 0; i < p->n_columns; i++)
                memcpy(&p->column[i], columns.data + 4 * i, 4);
        return true;
}

static uint32_t cell(struct span s, uint64_t i)
{
        uint32_t v;

        memcpy(&v, s.data + 4 * i, sizeof(v));
        return v;
}

/* Open addressing with a second hash (DWARF 5, section 7.3.5.2). The row, from 0; -1. */
static int64_t package_row(const struct package *p, uint64_t id)
{
        uint32_t mask = p->n_slots - 1, slot = (uint32_t)id & mask, step = ((uint32_t)(id >> 32) & mask) | 1;

        for (uint32_t i = 0; i < p->n_slots; i++, slot = (slot + step) & mask) {
                uint32_t row = cell(p->rows, slot);
                uint64_t hash;

                if (row == 0)
                        return -1;
                memcpy(&hash, p->hashes.data + 8ull * slot, sizeof(hash));
                if (hash == id)
                        return row <= p->n_units ? (int64_t)row - 1 : -1;
        }
        return -1;
}

static void narrow(struct span *s, uint64_t offset, uint64_t size)
{
        if (!s->data || offset > s->size || size > s->size - offset)
                *s = (struct span){0};
        else
                *s = (struct span){s->data + offset, size};
}

static bool package_file(const struct package *p, uint64_t id, struct dwarf_file *ret)
{
        int64_t row = p->n_slots ? package_row(p, id) : -1;

        if (row < 0)
                return false;
        *ret = p->file;
        for (uint32_t i = 0; i < p->n_columns; i++) {
                uint64_t at = (uint64_t)row * p->n_columns + i;
                uint32_t offset = cell(p->offsets, at), size = cell(p->sizes, at);

                switch (p->column[i]) {
                case SECT_INFO:
                        narrow(&ret->info, offset, size);
                        break;
                case SECT_ABBREV:
                        narrow(&ret->abbrev, offset, size);
                        break;
                case SECT_STR_OFFSETS:
                        narrow(&ret->str_offsets, offset, size);
                        break;
                case SECT_RNGLISTS:
                        if (p->version >= 5)
                                narrow(&ret->rnglists, offset, size);
                        break;
                }
        }
        return ret->info.size && ret->abbrev.size;
}

int dwarf_split_new(struct dwarf_split **ret, const struct dwarf_sources *sources,
                    struct dwarf_budget *budget)
{
        struct dwarf_split *s = dwarf_alloc(budget, 1, sizeof(*s));
        int r;

        if (!s)
                return -errno;
        s->budget = budget;
        s->find_dwo = sources->find_dwo;
        s->ctx = sources->ctx;
        s->next_serial = FIRST_SERIAL;
        if (sources->dwp) {
                struct elf_section index;

                r = elf_image_section(sources->dwp, ".debug_cu_index", &index);
                if (r >= 0)
                        r = dwarf_file_open(&s->package.file, sources->dwp, true, budget);
                if (r == -E2BIG || r == -ENOMEM) {
                        dwarf_split_free(s);
                        return r;
                }
                s->has_package = r >= 0 && read_index(&s->package, index.bytes);
        }
        *ret = s;
        return 0;
}

struct dwarf_split *dwarf_split_free(struct dwarf_split *s)
{
        if (!s)
                return NULL;
        while (s->files) {
                struct split_file *f = s->files;
                s->files = f->next;
                dwarf_file_close(&f->file);
                dwarf_release(s->budget, f, 1, sizeof(*f));
        }
        dwarf_release(s->budget, s, 1, sizeof(*s));
        return NULL;
}

/* Lets a split unit read what stands in the object alone. */
static void join(struct dwarf_file *f, struct dwarf_unit *u, const struct dwarf_unit *skeleton)
{
        f->addr = skeleton->file->addr;
        f->ranges = skeleton->file->ranges;
        f->line = (struct span){0};
        u->addr_base = skeleton->addr_base;
        u->ranges_base = skeleton->ranges_base;
        u->low_pc = skeleton->low_pc;
        if (!u->language)
                u->language = skeleton->language;
}

static int read_split(struct dwarf_split *s, struct split_file *f, const struct dwarf_unit *skeleton,
                      struct dwarf_unit **ret)
{
        int r;

        f->file.serial = s->next_serial++;
        r = dwarf_file_read_units(&f->file, NULL, NULL);
        if (r < 0)
                return r;
        for (uint64_t i = 0; i < f->file.n_units; i++) {
                struct dwarf_unit *u = &f->file.unit[i];

                if (u->has_dwo_id && u->dwo_id == skeleton->dwo_id) {
                        join(&f->file, u, skeleton);
                        *ret = u;
                        return 0;
                }
        }
        return -ENOENT;
}

static int open_split(struct dwarf_split *s, struct split_file *f, const struct dwarf_unit *skeleton)
{
        struct elf_image *e;

        if (s->has_package && package_file(&s->package, skeleton->dwo_id, &f->file))
                return 0;
        if (!s->find_dwo || !skeleton->dwo_name)
                return -ENOENT;
        e = s->find_dwo(s->ctx, skeleton->comp_dir, skeleton->dwo_name, skeleton->dwo_id);
        return e ? dwarf_file_open(&f->file, e, true, s->budget) : -ENOENT;
}

int dwarf_split_find(struct dwarf_split *s, const struct dwarf_unit *skeleton, struct dwarf_unit **ret)
{
        struct split_file *f;
        int r;

        *ret = NULL;
        if (!skeleton->has_dwo_id)
                return 0;
        f = dwarf_alloc(s->budget, 1, sizeof(*f));
        if (!f)
                return -errno;
        r = open_split(s, f, skeleton);
        if (r >= 0)
                r = read_split(s, f, skeleton, ret);
        if (r < 0) {
                dwarf_file_close(&f->file);
                dwarf_release(s->budget, f, 1, sizeof(*f));
                return r == -E2BIG || r == -ENOMEM ? r : 0;
        }
        f->next = s->files;
        s->files = f;
        return 0;
}
