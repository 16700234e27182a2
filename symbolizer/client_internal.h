/* What the parts of the client share: requests and objects (client.c), the conversation with the workers
 * (client_lane.c), their answers' checks (answers.c), the files
 * that they ask for (client_files.c), the use of the cache (client_cache.c), the places where debug files
 * may appear (client_places.c). */
#ifndef SYMBOLIZER_CLIENT_INTERNAL_H
#define SYMBOLIZER_CLIENT_INTERNAL_H

#include <sys/stat.h>

#include "symbolizer/bad_files.h"
#include "symbolizer/cache.h"
#include "symbolizer/client.h"
#include "symbolizer/finder.h"
#include "symbolizer/lane.h"
#include "symbolizer/names.h"

/* Two workers at most: one for all, and one, started on need, for the objects that take long, so that nobody
 * else waits for them. */
enum { LANE_MAIN, LANE_SLOW, N_LANES };

enum request_kind { REQUEST_OPEN, REQUEST_TABLE, REQUEST_NAMES, REQUEST_FUNCTIONS };

struct request {
        struct request *prev, *next; /* in a list */
        enum request_kind kind;
        struct symobj *obj;
        union {
                sym_open_fn open;
                sym_table_fn table;
                sym_names_fn names;
                sym_functions_fn functions;
        } fn;
        void *ctx;
        bool active;     /* a lane is at it */
        bool held;       /* until symclient_hold_names(false) */
        uint32_t deaths; /* of workers that were at it, by somebody else's hand */
        int error;       /* once finished */

        uint64_t *address; /* of names */
        uint32_t n;
        uint32_t *slot; /* of each address, its result in `names` */
        uint32_t *miss; /* the addresses that the worker is asked for */
        uint32_t n_miss, n_done;
        bool looked_up; /* in the cache */
        struct names names;
        char *name;        /* of functions; NULL: by address[0] */
        struct buf answer; /* with a table or functions, checked */
};

struct request_list {
        struct request *first, *last;
};

struct symobj {
        struct symobj *prev, *next;
        uint32_t id;
        uint32_t refs; /* the opener's, and one of each request */
        bool closed;
        int fd;
        char *path, *root;
        struct stat st;
        struct sym_info info;
        bool ready;      /* info is known */
        bool slow;       /* goes to LANE_SLOW */
        bool no_debug;   /* its debug information has failed */
        int error;       /* nothing of it works any more */
        int table_error; /* its unwind information does not work */
        bool is_jit;
        uint32_t pid; /* of a JIT's process */
        uint32_t ns_pid;
        uint32_t jit_kind;   /* enum wire_jit_kind; 0: not found yet */
        uint64_t root_place; /* client_root_of() when it was opened: its process may have ended since */
        uint64_t place;      /* client_place_of() when it was opened, or looked at again */
        struct cache_object *cached;
        uint64_t spent_ns;         /* CPU time of workers on its names, */
        uint64_t n_asked;          /* and the addresses it was spent on */
        uint64_t open_in[N_LANES]; /* generation of the lane that has it open */
};

struct lane_work {
        struct request *request; /* NULL: idle, or closing an object */
        bool greeted;            /* the worker has said hello */
        uint32_t step;           /* enum wire_type awaited; 0: none */
        uint32_t object;
        uint64_t start_ns, start_cpu_ns;
        bool finding; /* the worker waits for a file, */
        bool asked;   /* and the finder is at it */
        struct wire_want want;
        uint64_t find_ns;   /* since then */
        uint32_t *to_close; /* objects */
        uint32_t n_to_close, cap_to_close;
        uint64_t idle_ns; /* since then */
};

struct symclient {
        int exe_fd, epoll_fd, timer_fd, ready_fd;
        bool unsandboxed, timer_armed;
        bool names_held;
        uint64_t memory;
        char **debug_dirs;
        struct lane lane[N_LANES];
        struct lane_work work[N_LANES];
        struct finder *finder;
        struct dir_times *dir_times;
        struct symobj *jit_sought; /* by the finder, which is then no lane's */
        uint64_t jit_since_ns;
        struct request_list queue, finished;
        struct symobj *objects;
        uint32_t last_id;
        struct bad_files bad;
        struct cache *cache; /* NULL: none */
        uint32_t failed_starts;
        uint64_t next_start_ns;
        bool greeted; /* a worker has said hello at least once */
        struct symclient_stats stats;
};

/* -- client.c -- */

void request_append(struct request_list *l, struct request *r);
void request_remove(struct request_list *l, struct request *r);
/* Out of the queue, to be called back by the next dispatch. */
void request_finish(struct symclient *c, struct request *r, int error);
void symobj_unref(struct symclient *c, struct symobj *o);
/* Takes over what is known of its file being bad. */
void symobj_recall(struct symclient *c, struct symobj *o);

/* -- client_cache.c -- */

int client_cache_new(struct symclient *c, const struct symclient_options *options);
void client_cache_free(struct symclient *c);
/* The object's file is opened on first use, and closed with it. */
void client_cache_close(struct symclient *c, struct symobj *o);
/* Fills in what is known of a request for an object that is ready. True: it is finished. */
bool client_cache_look_up(struct symclient *c, struct request *r);
/* Keeps a new result. */
void client_cache_add(struct symclient *c, struct symobj *o, uint64_t address, const struct names *from,
                      uint32_t result, enum name_quality quality);
void client_cache_add_table(struct symclient *c, const struct request *r);

/* -- client_places.c -- */

/* A number for the root that its process has: 1 where it is ours. */
uint64_t client_root_of(const struct symobj *o);
/* A number that changes when a debug package is installed or removed. False: nobody answers now. */
bool client_place_of(const struct symclient *c, const struct symobj *o, uint64_t *ret);

/* -- client_files.c -- */

/* The worker of a lane has asked: lane.body is its question. -EBADMSG. */
int files_want(struct symclient *c, uint32_t lane);
/* Tells it: a descriptor, which is closed here, or an error. */
void files_answer(struct symclient *c, uint32_t lane, int fd);
/* Starts the next search, if there is one to make and none runs. */
void files_seek(struct symclient *c);
void files_found(struct symclient *c);
void files_abandon(struct symclient *c);

/* -- client_lane.c -- */

void lanes_init(struct symclient *c);
void lanes_free(struct symclient *c);
/* Gives the lanes that have nothing to do their next request. */
void lanes_pump(struct symclient *c);
/* Something has come from a lane, or it can be written to. */
void lanes_ready(struct symclient *c, uint32_t lane);
/* The worker has ended, or said what none of ours would: whatever it was at is to blame. */
void lanes_died(struct symclient *c, uint32_t lane);
/* Whether an answer with a table may be handed over. */
bool table_is_sound(const struct buf *b);
bool functions_are_sound(const struct buf *b);
/* Deadlines. */
void lanes_tick(struct symclient *c);
bool lanes_busy(const struct symclient *c);
/* The object will not be asked about any more. */
void lanes_forget_object(struct symclient *c, const struct symobj *o);

#endif
