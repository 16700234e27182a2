/* A stand-in for the symbolizer's client: answers what a test told it to, when it is told to. */
#ifndef TESTS_SYMCLIENT_FAKE_H
#define TESTS_SYMCLIENT_FAKE_H

#include "symbolizer/client.h"

struct symclient_fake {
        int open_error, table_error; /* of the next answers */
        struct sym_info info;
        struct sym_table table;
        uint32_t opens, tables, closes; /* requests so far */
        uint32_t table_requests_waiting;
};

struct symclient *symclient_fake_new(void);
struct symclient_fake *symclient_fake(struct symclient *c);

/* Answers all requests made so far; returns their number. */
uint32_t symclient_fake_run(struct symclient *c);

#endif
