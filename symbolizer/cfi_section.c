/* One pass over the entries; FDEs find their CIE by its offset in a hash table. Producers put a CIE before
 * the FDEs that use it; where one comes later a second pass picks those FDEs up. The work is linear in the
 * size of the section, whatever is in it. */
#include "symbolizer/cfi_section.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"

struct entry {
        struct cfi_reader body; /* after the id */
        uint64_t offset;        /* of the entry in the section */
        uint64_t cie_offset;    /* of an FDE's CIE */
        bool is_cie;
};

struct reading {
        struct cfi_entries *x;
        const struct cfi_section *s;
        uint32_t section_index;
        struct idtable by_offset;
        uint32_t last_cie;
        uint32_t n_forward; /* FDEs whose CIE was not there yet */
        bool forward_only;  /* the second pass */
};

void cfi_entries_done(struct cfi_entries *x)
{
        free(x->cie);
        free(x->fde);
        *x = (struct cfi_entries){0};
}

int cfi_entries_add(struct cfi_entries *x, const struct cfi_fde *fde)
{
        if (x->n_fdes == x->max_fdes) {
                uint32_t n = x->max_fdes ? x->max_fdes * 2 : 256;
                struct cfi_fde *p;

                if (n > CFI_MAX_FDES)
                        return -E2BIG;
                p = realloc(x->fde, n * sizeof(*p));
                if (!p)
                        return -ENOMEM;
                x->fde = p;
                x->max_fdes = n;
        }
        x->fde[x->n_fdes++] = *fde;
        return 0;
}

static bool cie_at(const void *ctx, uint32_t id, const void *key)
{
        const struct reading *r = ctx;

        return r->x->cie[id].offset == *(const uint64_t *)key;
}

static uint64_t cie_hash(const void *ctx, uint32_t id)
{
        const struct reading *r = ctx;

        return hash_u64(r->x->cie[id].offset, 0);
}

/* The augmentation string's letters and the data they stand for. False: one that changes the meaning of the
 * rest in a way not known. */
static bool read_augmentation(struct cfi_cie *cie, const char *letters, struct cfi_reader *r)
{
        struct cfi_reader data;

        if (!*letters)
                return true;
        if (*letters != 'z')
                return false;
        cie->augmented = true;
        data = cfi_take(r, cfi_uleb(r));
        for (letters++; *letters; letters++)
                switch (*letters) {
                case 'R':
                        cie->encoding = cfi_u8(&data);
                        break;
                case 'L':
                        cfi_u8(&data);
                        break;
                case 'P': {
                        uint8_t encoding = cfi_u8(&data);

                        cfi_pointer(&data, encoding & CFI_PE_FORMAT, 0, 0);
                        break;
                }
                case 'S':
                        cie->signal = true;
                        break;
                case 'B': /* aarch64: return addresses are signed with the B key */
                case 'G': /* aarch64: the stack frame is tagged (MTE) */
                        break;
                default: /* the length says where the instructions begin */
                        return !r->bad;
                }
        return !r->bad && !data.bad;
}

static bool parse_cie(struct cfi_cie *cie, const struct cfi_arch *arch, struct cfi_reader r)
{
        const char *augmentation;
        const uint8_t *nul;
        uint8_t version = cfi_u8(&r);
        uint64_t ra;

        if (version != 1 && version != 3 && version != 4)
                return false;
        nul = memchr(r.p, 0, cfi_left(&r));
        if (!nul)
                return false;
        augmentation = (const char *)r.p;
        r.p = nul + 1;
        if (version == 4 && (cfi_u8(&r) != 8 || cfi_u8(&r) != 0)) /* address size, segment selector size */
                return false;
        if (strncmp(augmentation, "eh", 2) == 0) { /* GCC 2: a pointer to exception tables */
                cfi_u64(&r);
                augmentation += 2;
        }
        cie->code_align = cfi_uleb(&r);
        cie->data_align = cfi_sleb(&r);
        ra = version == 1 ? cfi_u8(&r) : cfi_uleb(&r);
        if (r.bad || ra != arch->ra || !read_augmentation(cie, augmentation, &r))
                return false;
        return cfi_eval_initial(arch, cie, r);
}

static int add_cie(struct reading *r, const struct entry *e)
{
        struct cfi_entries *x = r->x;
        struct cfi_cie *cie;

        if (x->n_cies == x->max_cies) {
                uint32_t n = x->max_cies ? x->max_cies * 2 : 16;
                struct cfi_cie *p;

                if (n > CFI_MAX_CIES)
                        return -E2BIG;
                p = realloc(x->cie, n * sizeof(*p));
                if (!p)
                        return -ENOMEM;
                x->cie = p;
                x->max_cies = n;
        }
        cie = &x->cie[x->n_cies];
        *cie = (struct cfi_cie){.offset = e->offset};
        cie->usable = parse_cie(cie, x->arch, e->body);
        x->bad += !cie->usable;
        r->last_cie = x->n_cies++;
        return idtable_add(&r->by_offset, cie_hash(r, r->last_cie), r->last_cie, cie_hash, r);
}

static uint32_t find_cie(struct reading *r, uint64_t offset)
{
        if (r->last_cie == IDTABLE_NONE || r->x->cie[r->last_cie].offset != offset)
                r->last_cie = idtable_find(&r->by_offset, hash_u64(offset, 0), cie_at, r, &offset);
        return r->last_cie;
}

/* Cuts a function's addresses to the text they are in; false when they are in none. */
static bool place(const struct cfi_text *text, uint64_t pc, uint64_t size, struct cfi_fde *fde)
{
        uint64_t start = pc - text->base;

        for (uint32_t i = 0; i < text->n; i++) {
                uint32_t end = text->range[i].end;

                if (start < text->range[i].start || start >= end)
                        continue;
                fde->pc = (uint32_t)start;
                fde->end = size < end - start ? (uint32_t)(start + size) : end;
                return true;
        }
        return false;
}

static int add_fde(struct reading *r, const struct entry *e, uint32_t cie_index)
{
        const struct cfi_section *s = r->s;
        const struct cfi_cie *cie = &r->x->cie[cie_index];
        struct cfi_reader body = e->body;
        struct cfi_fde fde = {.cie = cie_index, .section = r->section_index};
        uint64_t pc, size;

        if (!cie->usable) {
                r->x->bad++;
                return 0;
        }
        pc = cfi_pointer(&body, cie->encoding, s->address + (uint64_t)(body.p - s->data), 0);
        size = cfi_pointer(&body, cie->encoding & CFI_PE_FORMAT, 0, 0);
        if (cie->augmented)
                cfi_skip(&body, cfi_uleb(&body));
        if (body.bad) {
                r->x->bad++;
                return 0;
        }
        /* A function that the linker dropped leaves an FDE of address 0 or of no size. */
        if (!size || !place(r->x->text, pc, size, &fde))
                return 0;
        fde.program = (uint32_t)(body.p - s->data);
        fde.program_n = (uint32_t)cfi_left(&body);
        return cfi_entries_add(r->x, &fde);
}

/* The entry at the reader's position. 1: one was read; 0: the end, or damage that hides where the next is.
 */
static int next_entry(struct reading *r, struct cfi_reader *at, struct entry *ret)
{
        const struct cfi_section *s = r->s;
        while (cfi_left(at) >= 4) {
                struct entry e = {.offset = (uint64_t)(at->p - s->data)};
                uint64_t length = cfi_u32(at), id, id_offset;
                bool wide = length == UINT32_MAX;

                if (!length) {
                        /* The terminator; linkers that join sections leave some in the middle. */
                        if (s->unbounded)
                                return 0;
                        continue;
                }
                if (wide)
                        length = cfi_u64(at);
                e.body = cfi_take(at, length);
                if (at->bad) {
                        r->x->bad += !s->unbounded && !r->forward_only;
                        return 0;
                }
                id_offset = (uint64_t)(e.body.p - s->data);
                id = wide && !s->eh ? cfi_u64(&e.body) : cfi_u32(&e.body);
                if (s->eh) {
                        e.is_cie = id == 0;
                        e.cie_offset = id_offset - (uint64_t)(int64_t)(int32_t)id;
                } else {
                        e.is_cie = id == (wide ? UINT64_MAX : UINT32_MAX);
                        e.cie_offset = id;
                }
                *ret = e;
                return 1;
        }
        return 0;
}

static int read_pass(struct reading *r)
{
        struct cfi_reader at = {.p = r->s->data, .end = r->s->data + r->s->size};
        struct entry e;

        r->last_cie = IDTABLE_NONE;
        while (next_entry(r, &at, &e)) {
                uint32_t cie;
                int k = 0;

                if (e.is_cie) {
                        if (!r->forward_only)
                                k = add_cie(r, &e);
                } else if (!r->forward_only || e.cie_offset > e.offset) {
                        cie = find_cie(r, e.cie_offset);
                        if (cie != IDTABLE_NONE)
                                k = add_fde(r, &e, cie);
                        else if (!r->forward_only && e.cie_offset > e.offset)
                                r->n_forward++;
                        else
                                r->x->bad++;
                }
                if (k < 0)
                        return k;
        }
        return 0;
}

int cfi_section_read(struct cfi_entries *x, const struct cfi_section *s, uint32_t section_index)
{
        struct reading r = {.x = x, .s = s, .section_index = section_index};
        int k;

        if (s->size > UINT32_MAX)
                return -E2BIG;
        k = read_pass(&r);
        if (k >= 0 && r.n_forward) {
                r.forward_only = true;
                k = read_pass(&r);
        }
        idtable_free(&r.by_offset);
        return k;
}

#define DIGIT_BITS 11
#define DIGITS     (1u << DIGIT_BITS)

struct key {
        uint32_t pc, index;
};

/* Stable, so that of several entries for an address the order in the file decides. */
static void radix_sort(struct key *key, struct key *other, uint32_t n)
{
        uint32_t count[DIGITS];

        for (unsigned shift = 0; shift < 33; shift += DIGIT_BITS) {
                uint32_t sum = 0;
                struct key *swap;

                memset(count, 0, sizeof(count));
                for (uint32_t i = 0; i < n; i++)
                        count[key[i].pc >> shift & (DIGITS - 1)]++;
                for (uint32_t i = 0; i < DIGITS; i++) {
                        uint32_t c = count[i];

                        count[i] = sum;
                        sum += c;
                }
                for (uint32_t i = 0; i < n; i++)
                        other[count[key[i].pc >> shift & (DIGITS - 1)]++] = key[i];
                swap = key;
                key = other;
                other = swap;
        }
}

int cfi_entries_sort(struct cfi_entries *x)
{
        _cleanup_free_ struct key *key = NULL;
        struct cfi_fde *sorted;
        uint32_t i = 1;

        while (i < x->n_fdes && x->fde[i].pc >= x->fde[i - 1].pc)
                i++;
        if (i >= x->n_fdes)
                return 0;
        key = malloc(2 * (size_t)x->n_fdes * sizeof(*key));
        sorted = malloc(x->n_fdes * sizeof(*sorted));
        if (!key || !sorted) {
                free(sorted);
                return -ENOMEM;
        }
        for (i = 0; i < x->n_fdes; i++)
                key[i] = (struct key){.pc = x->fde[i].pc, .index = i};
        radix_sort(key, key + x->n_fdes, x->n_fdes);
        for (i = 0; i < x->n_fdes; i++) /* three passes: the result is in the other half */
                sorted[i] = x->fde[key[x->n_fdes + i].index];
        free(x->fde);
        x->fde = sorted;
        x->max_fdes = x->n_fdes;
        return 0;
}

uint32_t cfi_entries_after(const struct cfi_entries *x, uint32_t n, uint32_t pc)
{
        uint32_t low = 0, high = n;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (x->fde[middle].pc <= pc)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

bool cfi_entries_cover(const struct cfi_entries *x, uint32_t n, uint32_t start, uint32_t end)
{
        uint32_t i = cfi_entries_after(x, n, start);

        return (i && x->fde[i - 1].end > start) || (i < n && x->fde[i].pc < end);
}

int cfi_section_fill(struct cfi_entries *x, const struct cfi_section *s, uint32_t section_index)
{
        uint32_t n = x->n_fdes, to = n;
        int k = cfi_section_read(x, s, section_index);

        if (k < 0)
                return k;
        for (uint32_t i = n; i < x->n_fdes; i++)
                if (!cfi_entries_cover(x, n, x->fde[i].pc, x->fde[i].end))
                        x->fde[to++] = x->fde[i];
        x->n_fdes = to;
        return cfi_entries_sort(x);
}
