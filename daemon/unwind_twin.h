/* The walk of a deferred sample: the kernel half's own step (bpf/unwind_step.h), on registers and what was
 * copied of the stack, with the mappings of the sample's time. */
#ifndef DAEMON_UNWIND_TWIN_H
#define DAEMON_UNWIND_TWIN_H

#include "daemon/object_table.h"
#include "daemon/process_map.h"

struct unwind_twin_result {
        enum abi_walk walk;
        bool unmapped; /* ended at an address outside every mapping */
        uint32_t n;
        uint64_t frame[ABI_MAX_FRAMES]; /* leaf first */
        /* When the walk needs what is not there (yet): an object, and the ELF address whose rows it wants;
         */
        struct object_entry *missing; /* NULL: nothing is missing */
        bool missing_rows;            /* false: the object itself was not opened yet */
        uint64_t missing_address;
};

void unwind_twin_walk(const struct abi_raw *raw, const struct process_maps *maps,
                      const struct unwind_tables *tables, uint64_t now_ns, struct unwind_twin_result *ret);

#endif
