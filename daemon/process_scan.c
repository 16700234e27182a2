#include "daemon/process_scan.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

/* vm.max_map_count is 65530 as a rule, lines are some 100 bytes. */
#define MAX_MAPS_BYTES (64u << 20)
#define MAX_STAT_BYTES 4096

static int read_proc(uint32_t pid, const char *file, size_t max, struct buf *b)
{
        char path[48];

        snprintf(path, sizeof(path), "/proc/%u/%s", pid, file);
        buf_clear(b);
        return read_file(path, max, b);
}

int process_scan_stat(uint32_t pid, struct buf *b, struct process_stat *ret)
{
        struct process_stat s = {0};
        unsigned long long start;

        int r = read_proc(pid, "stat", MAX_STAT_BYTES, b);
        if (r < 0)
                return r;
        /* The comm may hold anything, brackets and spaces too: it ends at the last bracket. proc(5). */
        const char *text = buf_text(b), *open = strchr(text, '('), *close = strrchr(text, ')');
        if (!open || !close || close < open)
                return -EINVAL;
        size_t n = MIN_OF((size_t)(close - open - 1), sizeof(s.comm) - 1);
        memcpy(s.comm, open + 1, n);
        if (sscanf(close + 1,
                   " %c %u %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u %*d %llu",
                   &s.state, &s.ppid, &s.threads, &start) != 4)
                return -EINVAL;
        uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
        s.start_ns = start / hz * NSEC_PER_SEC + start % hz * NSEC_PER_SEC / hz;
        *ret = s;
        return 0;
}

static bool parse_hex(const char **p, uint64_t *ret, char end)
{
        char *after;

        errno = 0;
        *ret = strtoull(*p, &after, 16);
        if (after == *p || errno || *after != end)
                return false;
        *p = after + 1;
        return true;
}

/* "start-end perms offset major:minor inode   path", proc(5). */
static bool parse_line(char *line, struct process_scan_map *ret)
{
        uint64_t major, minor;
        const char *p = line;
        char *after;

        if (!parse_hex(&p, &ret->start, '-') || !parse_hex(&p, &ret->end, ' '))
                return false;
        if (strlen(p) < 5 || p[2] != 'x')
                return false;
        p += 5;
        if (!parse_hex(&p, &ret->offset, ' ') || !parse_hex(&p, &major, ':') || !parse_hex(&p, &minor, ' '))
                return false;
        ret->inode = strtoull(p, &after, 10);
        while (*after == ' ')
                after++;
        ret->device = ret->inode ? major << 32 | minor : 0;
        ret->name = *after ? after : "//anon";
        return ret->end > ret->start;
}

uint32_t process_scan_maps_text(char *text, process_scan_map_fn fn, void *ctx)
{
        uint32_t n = 0;

        for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
                struct process_scan_map m;
                *end = 0;
                if (parse_line(line, &m)) {
                        fn(ctx, &m);
                        n++;
                }
        }
        return n;
}

int process_scan_maps(uint32_t pid, struct buf *b, process_scan_map_fn fn, void *ctx)
{
        int r = read_proc(pid, "maps", MAX_MAPS_BYTES, b);

        if (r < 0)
                return r;
        return b->len ? (int)process_scan_maps_text(b->data, fn, ctx) : 0;
}

uint32_t process_scan_ns_pid(uint32_t pid, struct buf *b)
{
        if (read_proc(pid, "status", MAX_STAT_BYTES, b) < 0)
                return 0;
        const char *line = strstr(buf_text(b), "\nNSpid:");
        if (!line)
                return 0;
        const char *end = strchr(line + 1, '\n');
        const char *last = end;
        while (last && last > line && last[-1] != '\t')
                last--;
        return last ? (uint32_t)strtoul(last, NULL, 10) : 0;
}

int process_scan_all(void (*fn)(void *ctx, uint32_t pid), void *ctx)
{
        DIR *d = opendir("/proc");

        if (!d)
                return -errno;
        for (struct dirent *e; (e = readdir(d));) {
                char *end;
                unsigned long pid = strtoul(e->d_name, &end, 10);
                if (*end == 0 && pid > 0 && pid <= UINT32_MAX)
                        fn(ctx, (uint32_t)pid);
        }
        closedir(d);
        return 0;
}
