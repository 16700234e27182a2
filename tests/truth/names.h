/* Names by the symbol tables of ELF files, read with libelf: shares no code with what is tested. */
#ifndef TESTS_TRUTH_NAMES_H
#define TESTS_TRUTH_NAMES_H

#include <stdint.h>

struct truth_names;

struct truth_names *truth_names_new(void);
void truth_names_free(struct truth_names *n);

/* The function that covers an ELF address of a file; NULL: none is known. Lives as long as `n`. */
const char *truth_name(struct truth_names *n, const char *path, uint64_t address);

/* The same for an address that is so far behind the start of the file's executable mapping. */
const char *truth_name_in_text(struct truth_names *n, const char *path, uint64_t distance);

#endif
