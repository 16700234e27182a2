/* Names of kernel addresses: kallsyms, modules and BPF programs included.
 *
 * Trusted input (the kernel's own), read in the process that may read it. */
#ifndef SYMBOLIZER_KERNEL_H
#define SYMBOLIZER_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

struct kernel_symbols;

struct kernel_symbol {
        const char *name;   /* valid until the next refresh */
        const char *module; /* "[name]" of the module, "[kernel.kallsyms]" of the kernel, "[bpf]" */
        uint64_t start;
        uint64_t offset; /* of the address in it */
};

/* -EPERM: addresses are hidden (kptr_restrict, lockdown, no CAP_SYSLOG); the caller goes on without names
 * and says so. */
int kernel_symbols_new(struct kernel_symbols **ret);
struct kernel_symbols *kernel_symbols_free(struct kernel_symbols *k);

/* Reads again when modules or BPF programs have changed since. Returns 1 when it did, 0 when not. */
int kernel_symbols_refresh(struct kernel_symbols *k);

/* false: no symbol covers it. */
bool kernel_symbols_find(const struct kernel_symbols *k, uint64_t address, struct kernel_symbol *ret);

/* Where a function is, by its exact name. Of several names of one address only the best is known. */
bool kernel_symbols_find_name(const struct kernel_symbols *k, const char *name, uint64_t *ret);

/* Build ID of the running kernel (/sys/kernel/notes); its length, 0 when not known. */
uint32_t kernel_build_id(uint8_t *ret, uint32_t max);

#endif
