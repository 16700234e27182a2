/* The tree of a flame graph: stacks from their root, equal frames of equal parents merged. */
#ifndef PROFILE_FLAME_TREE_H
#define PROFILE_FLAME_TREE_H

#include "profile/profile.h"
#include "profile/symbols.h"

struct flame_node {
        uint32_t parent;
        uint32_t first_child, next; /* index, 0: none; children by value, largest first */
        uint32_t process;           /* string: the node is a process; 0: it is a symbol's */
        uint32_t symbol;
        bool inlined;
        int64_t value[2]; /* before, after */
};

struct flame_tree {
        struct flame_node *node; /* 0 is the root, all samples */
        uint32_t n;
        struct symbols *symbols;
};

/* The tree of a pair (profile/pair.h) with the label "comm" as the first level. */
int flame_tree_new(struct flame_tree **ret, const struct profile *pair, bool no_inline);
struct flame_tree *flame_tree_free(struct flame_tree *t);
DEFINE_CLEANUP(struct flame_tree, flame_tree_free);
#define _cleanup_flame_tree_ _cleanup_(flame_tree_free_cleanup)

#endif
