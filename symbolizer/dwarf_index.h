/* Address → inline chain with files and lines, from DWARF 2 to 5.
 *
 * An index of our own over a bounded reader of our own: unit ranges from the unit DIEs, each unit walked
 * once on first use and flattened into sorted disjoint segments with parent links; compact line rows; names
 * resolved on demand. Runs in the worker; trusts nothing; bounded by a budget. */
#ifndef SYMBOLIZER_DWARF_INDEX_H
#define SYMBOLIZER_DWARF_INDEX_H

#include "symbolizer/elf_image.h"

struct dwarf_index;

/* Finds a split unit's file: by name and DWO id. Returns an image that the finder owns, or NULL. */
typedef struct elf_image *(*dwarf_dwo_fn)(void *ctx, const char *comp_dir, const char *name,
                                          uint64_t dwo_id);

struct dwarf_sources {
        struct elf_image *main; /* holds .debug_info and the rest */
        struct elf_image *alt;  /* dwz: .gnu_debugaltlink or DWARF 5 supplementary file; NULL */
        struct elf_image *dwp;  /* package of split units; NULL */
        dwarf_dwo_fn find_dwo;  /* NULL: none */
        void *ctx;
        uint64_t max_memory; /* bytes of index; 0: 512 MiB */
        uint64_t max_dies;   /* walked over the index's life; 0: 200 million */
};

struct dwarf_frame {
        const char *name; /* linkage name of a language that mangles, as it is; else DW_AT_name with what it
                             is in ("ns::type::f") where the language has such; NULL */
        const char *short_name; /* DW_AT_name; NULL */
        const char *file;       /* full path, as joined from the line table's directories; NULL */
        uint32_t line, function_line;
        uint16_t language; /* DW_AT_language of the unit */
        bool inlined;
};

/* -ENODATA: no DWARF in it. */
int dwarf_index_new(struct dwarf_index **ret, const struct dwarf_sources *sources);
struct dwarf_index *dwarf_index_free(struct dwarf_index *d);

/* Innermost first; the number of frames (0: nothing covers it), at most max: deeper chains lose the middle,
 * the last frame is always the function that is not inlined. Code with lines but without a function
 * (assembler) gives one frame without names. -E2BIG over the budget. A unit that is damaged gives what
 * stands before the damage. Strings live as long as the index and its images. */
int dwarf_index_find(struct dwarf_index *d, uint64_t address, struct dwarf_frame *ret, uint32_t max);

struct dwarf_stats {
        uint64_t memory; /* bytes of index now, without the images */
        uint64_t work;   /* of max_dies */
        uint64_t units, walked;
};
void dwarf_index_stats(const struct dwarf_index *d, struct dwarf_stats *ret);

/* Names of separate files this one asks for; NULL when it asks for none. */
const char *dwarf_alt_link(struct elf_image *e, struct span *ret_build_id);

#endif
