/* What is said between the client and its worker, over a stream socket; both are of one build, on one
 * machine.
 *
 * One request at a time: a message with a header and `size` bytes, and a file descriptor where the type says
 * so. The worker answers with one message of the same type. Between a request and its answer the worker may
 * ask for files (WIRE_WANT), one at a time, and waits for each.
 *
 * The client believes nothing: sizes are bounded, offsets and strings checked before use. */
#ifndef SYMBOLIZER_PROTOCOL_H
#define SYMBOLIZER_PROTOCOL_H

#include <stdint.h>

#include "symbolizer/client.h"

#define WIRE_FD      3 /* the socket in the worker */
#define WIRE_VERSION 3 /* of this file: a worker that an upgrade has replaced is not talked to */

enum wire_type {
        WIRE_HELLO = 1,    /* worker, unasked, once: struct wire_hello */
        WIRE_OPEN = 2,     /* with a descriptor → struct wire_info */
        WIRE_OPEN_JIT = 3, /* struct wire_jit, with a descriptor → nothing */
        WIRE_CLOSE = 4,    /* → nothing */
        WIRE_TABLE = 5,    /* → struct wire_table and its arrays */
        WIRE_NAMES = 6, /* struct wire_names and addresses → struct wire_named, results of the first ones */
        WIRE_FUNCTIONS = 8, /* struct wire_functions → struct wire_function[], text and code */
        WIRE_WANT = 7,      /* worker: struct wire_want → nothing, with a descriptor unless error */
};

struct wire_header {
        uint32_t type;
        uint32_t size;
        uint32_t object; /* the client's number */
        int32_t error;   /* in answers: 0 or negative errno, then without bytes */
};

#define WIRE_MAX_REQUEST (1u << 20)
#define WIRE_MAX_ANSWER  (256u << 20)

struct wire_hello {
        uint32_t version; /* WIRE_VERSION */
        uint32_t sandbox; /* enum sandbox_part */
};

struct wire_info {
        struct sym_info info;
        uint8_t has_minidebug;
};

enum wire_jit_kind { WIRE_JIT_MAP = 1, WIRE_JIT_DUMP = 2 };

struct wire_jit {
        uint32_t kind;
        uint32_t pid; /* in its own namespace: what a dump's header must say */
};

struct wire_table {
        uint32_t first_page, n_pages, n_rows, n_rules;
        /* page_start[n_pages + 1], row[n_rows], rule[n_rules] */
};

#define WIRE_NO_DEBUG 1u /* symbol table only: the debug information has failed */

struct wire_names {
        uint32_t flags, n;
        /* uint64_t address[n] */
};

struct wire_named {
        uint32_t quality; /* enum name_quality */
        uint32_t reserved;
        /* what names_encode() has made */
};

struct wire_functions {
        uint64_t address;
        char name[1024]; /* with NUL; "": by address */
};

struct wire_function { /* as many as the answer's first uint64_t says, behind it; then bytes */
        uint64_t start, size;
        uint32_t name, linkage; /* offsets into the bytes, of text with its NUL */
        uint32_t code, code_size;
};

enum wire_want_kind {
        WIRE_WANT_DEBUG = 1,   /* the separate debug file: build_id, name = .gnu_debuglink */
        WIRE_WANT_ALT = 2,     /* dwz: name = .gnu_debugaltlink, build_id */
        WIRE_WANT_DWP = 3,     /* package of split units */
        WIRE_WANT_DWO = 4,     /* one split unit: name, directory */
        WIRE_WANT_SCRATCH = 5, /* a file of `size` bytes to write to (symbolizer/scratch.h) */
};

struct wire_want {
        uint32_t kind;
        uint32_t attempt; /* 0, 1, ...: the next place where there is such a file */
        uint8_t build_id[SYM_BUILD_ID_MAX];
        uint32_t build_id_len;
        uint64_t size;
        char name[1024];      /* with NUL */
        char directory[1024]; /* with NUL */
};

#endif
