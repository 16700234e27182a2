/* Compares the unwind table of a file with what libdw says about its `.eh_frame`, row by row. */
#ifndef TESTS_SYMBOLIZER_CFI_ORACLE_H
#define TESTS_SYMBOLIZER_CFI_ORACLE_H

#include <stdint.h>

#include "symbolizer/cfi.h"

struct cfi_oracle_result {
        uint64_t fdes, rows;  /* compared */
        uint64_t differ;      /* of the rows */
        uint64_t refused;     /* rows for which libdw gives an error and the table none */
        uint64_t unsupported; /* rows that the rules cannot express, by libdw's account too */
        uint64_t eh_bytes;
        double build_ms;         /* CPU time of cfi_build() */
        struct cfi_table *table; /* for the caller to free */
};

/* At most about max_rows rows, spread evenly over the file's functions; 0: all. The first `print`
 * differences go to stdout. -ENODATA: no .eh_frame, or not an object of a kind that has tables; -EBADE: one
 * of the two can read it and the other cannot; or why the file cannot be read. */
int cfi_oracle_compare(const char *path, uint64_t max_rows, uint32_t print, struct cfi_oracle_result *ret);

#endif
