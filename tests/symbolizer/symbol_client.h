/* What the tests of the client share: a client, answers to compare, commands of binutils. */
#ifndef TESTS_SYMBOL_CLIENT_H
#define TESTS_SYMBOL_CLIENT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "symbolizer/client.h"

#define SOON_MS 30000

struct answer { /* what a callback has said */
        uint32_t calls;
        int err;
        char function[256]; /* the outermost frame's */
        char inner[256];    /* the innermost frame's */
        char file[256];
        uint32_t line, n, n_frames;
        struct sym_info info;
        uint32_t n_rows;
};

void answer_open(void *ctx, int err, struct symobj *obj, const struct sym_info *info);
void answer_names(void *ctx, int err, const struct sym_result *results, uint32_t n);
void answer_table(void *ctx, int err, const struct sym_table *table);

struct symclient *client_new(const struct symclient_options *options);
/* Opens as the symbolizer's users do; root may be NULL. */
struct symobj *open_path(struct symclient *c, const char *path, const char *root, struct answer *a);
/* The name of one address, waited for. */
void ask_one(struct symclient *c, struct symobj *o, uint64_t address, struct answer *a);
/* Opens, asks, closes. */
void name_in_file(struct symclient *c, const char *path, const char *root, uint64_t address,
                  struct answer *a);

/* Runs a command, which must succeed; its output without the last line feed, to be freed. */
char *output_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The address of a symbol, by nm. */
uint64_t address_by_nm(const char *path, const char *symbol);

/* A directory for the test; removed with all in it. */
char *scratch_new(void);
void scratch_free(char *dir);

#endif
