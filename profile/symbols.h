/* What the frames of a profile are called: the one place that decides what counts as the same function and
 * how an address without a name is shown.
 *
 * A symbol is a function name in an object (path of the mapping); versions of a file are the same object.
 * Code without a name is a symbol per address, "object+0xaddress", never its neighbour's. */
#ifndef PROFILE_SYMBOLS_H
#define PROFILE_SYMBOLS_H

#include "profile/profile.h"

struct symbol {
        const char *name;
        const char *object;   /* path, "[kernel.kallsyms]"; "" when not known */
        const char *build_id; /* of a mapping it was seen in; "" */
        bool named, kernel;
};

struct symbol_frame {
        uint32_t symbol;
        uint32_t function; /* of the profile; 0: without a name */
        int64_t line;      /* 0: not known */
        bool inlined;      /* into the frame behind it */
};

struct symbols {
        struct symbol *symbol;
        uint32_t n;
        uint32_t no_stack;          /* the symbol that stands for a stack without frames */
        struct symbol_frame *frame; /* of all locations */
        uint32_t *first;            /* frames of location l: first[l] .. first[l + 1] - 1, innermost first */
        char *text;                 /* of the names made here */
};

/* `inlines`: false leaves only the outermost frame of each location, the function that is really called. The
 * profile must outlive the symbols. */
int symbols_new(struct symbols **ret, const struct profile *p, bool inlines);
struct symbols *symbols_free(struct symbols *s);
DEFINE_CLEANUP(struct symbols, symbols_free);
#define _cleanup_symbols_ _cleanup_(symbols_free_cleanup)

/* The frames of one sample, innermost first; a zeroed struct is an empty list. */
struct frame_list {
        uint32_t *frame;    /* indices in symbols->frame */
        uint32_t *location; /* the location of each */
        uint32_t n, cap, cap_location;
};
int symbols_frames(const struct symbols *s, const struct profile *p, const struct profile_sample *sample,
                   struct frame_list *ret);
void frame_list_free(struct frame_list *l);
#define _cleanup_frame_list_ _cleanup_(frame_list_free)

/* The part of a path behind its last '/'. */
const char *object_base_name(const char *path);

#endif
