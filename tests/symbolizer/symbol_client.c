#include "symbol_client.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"

void answer_open(void *ctx, int err, struct symobj *obj, const struct sym_info *info)
{
        struct answer *a = ctx;

        a->calls++;
        a->err = err;
        if (info)
                a->info = *info;
}

void answer_names(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        struct answer *a = ctx;

        a->calls++;
        a->err = err;
        a->n = n;
        a->function[0] = a->inner[0] = a->file[0] = 0;
        a->line = a->n_frames = 0;
        if (err < 0 || n == 0 || results[0].n == 0)
                return;

        const struct sym_frame *in = &results[0].frame[0], *out = &results[0].frame[results[0].n - 1];

        a->n_frames = results[0].n;
        snprintf(a->inner, sizeof(a->inner), "%s", in->function ? in->function : "");
        snprintf(a->function, sizeof(a->function), "%s", out->function ? out->function : "");
        snprintf(a->file, sizeof(a->file), "%s", out->file ? out->file : "");
        a->line = out->line;
}

void answer_table(void *ctx, int err, const struct sym_table *table)
{
        struct answer *a = ctx;

        a->calls++;
        a->err = err;
        if (table)
                a->n_rows = table->n_rows;
}

struct symclient *client_new(const struct symclient_options *options)
{
        struct symclient *c;

        assert_int_equal(symclient_new(&c, options), 0);
        return c;
}

struct symobj *open_path(struct symclient *c, const char *path, const char *root, struct answer *a)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct sym_source source = {.path = path, .root = root};
        struct symobj *o;

        if (fd < 0)
                fail_msg("cannot open %s: %m", path);
        o = symclient_open(c, fd, &source, answer_open, a);
        assert_non_null(o);
        return o;
}

void ask_one(struct symclient *c, struct symobj *o, uint64_t address, struct answer *a)
{
        *a = (struct answer){};
        assert_int_equal(symclient_names(c, o, &address, 1, answer_names, a), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(a->calls, 1);
}

void name_in_file(struct symclient *c, const char *path, const char *root, uint64_t address,
                  struct answer *a)
{
        struct answer opened = {};
        struct symobj *o = open_path(c, path, root, &opened);

        ask_one(c, o, address, a);
        symobj_close(c, o);
}

char *output_of(const char *fmt, ...)
{
        _cleanup_free_ char *command = NULL;
        struct buf b = {};
        va_list ap;
        FILE *f;
        int c;

        va_start(ap, fmt);
        assert_true(vasprintf(&command, fmt, ap) > 0);
        va_end(ap);
        f = popen(command, "r");
        assert_non_null(f);
        while ((c = fgetc(f)) != EOF)
                buf_addc(&b, (char)c);
        if (pclose(f) != 0)
                fail_msg("%s failed", command);
        if (b.len > 0 && b.data[b.len - 1] == '\n')
                b.data[--b.len] = 0;
        return b.data ? buf_take(&b) : strdup("");
}

uint64_t address_by_nm(const char *path, const char *symbol)
{
        _cleanup_free_ char *text = output_of("nm %s | awk '$3 == \"%s\" { print $1 }'", path, symbol);
        uint64_t address = strtoull(text, NULL, 16);

        if (address == 0)
                fail_msg("nm finds no %s in %s", symbol, path);
        return address;
}

char *scratch_new(void)
{
        char *dir = strdup("/tmp/profd-symbols.XXXXXX");

        assert_non_null(dir);
        assert_non_null(mkdtemp(dir));
        return dir;
}

void scratch_free(char *dir)
{
        free(output_of("rm -rf %s", dir));
        free(dir);
}
