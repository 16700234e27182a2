#include "tools/debug_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "symbolizer/build_id.h"
#include "tools/say.h"

#define FILES         ".build-id"
#define MISSING       ".missing"
#define LINKS         ".alt" /* symbolic links: an ID to the ID of its dwz file */
#define MISSING_AGE_S (24 * 3600)

static int make_directory(const char *path)
{
        return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

static int make_below(const struct debug_cache *c, const char *name)
{
        char path[PATH_MAX];

        if (snprintf(path, sizeof(path), "%s/%s", c->directory, name) >= (int)sizeof(path))
                return -ENAMETOOLONG;
        return make_directory(path);
}

int debug_cache_open(struct debug_cache *c, const char *directory, uint64_t max)
{
        char lock[PATH_MAX];

        *c = (struct debug_cache){.directory = directory, .max = max, .lock_fd = -1};
        if (strlen(directory) > PATH_MAX - 128)
                return say_failed("the path %s is too long", directory);
        snprintf(lock, sizeof(lock), "%s/.lock", directory);
        snprintf(c->temporary, sizeof(c->temporary), "%s/.fetching", directory);
        snprintf(c->alt_temporary, sizeof(c->alt_temporary), "%s/.fetching-alt", directory);
        int r = make_directory(directory);
        if (r >= 0)
                r = make_below(c, FILES);
        if (r >= 0)
                r = make_below(c, MISSING);
        if (r >= 0)
                r = make_below(c, LINKS);
        if (r < 0)
                return say_failed("cannot make directories in %s: %s", directory, strerror(-r));
        c->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (c->lock_fd < 0)
                return say_failed("cannot open %s: %s", lock, strerror(errno));
        if (flock(c->lock_fd, LOCK_EX | LOCK_NB) < 0) {
                debug_cache_close(c);
                return say_failed("another profctl debuginfod is at work in %s", directory);
        }
        return STATUS_DONE;
}

void debug_cache_close(struct debug_cache *c)
{
        if (c->lock_fd >= 0)
                close(c->lock_fd);
        c->lock_fd = -1;
}

/* They fit: an ID has 64 digits at most, and the directory's name was seen to leave room for as much. */
static void file_path(const struct debug_cache *c, const char *id, char path[PATH_MAX])
{
        snprintf(path, PATH_MAX, "%s/" BUILD_ID_FILE, c->directory, id, id + 2);
}

static void path_below(const struct debug_cache *c, const char *name, const char *id, char path[PATH_MAX])
{
        snprintf(path, PATH_MAX, "%s/%s/%s", c->directory, name, id);
}

static bool touch(const char *path)
{
        return utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

static void touch_linked(const struct debug_cache *c, const char *build_id)
{
        char path[PATH_MAX], alt[BUILD_ID_TEXT_MAX];

        path_below(c, LINKS, build_id, path);
        ssize_t n = readlink(path, alt, sizeof(alt) - 1);
        if (n <= 2)
                return;
        alt[n] = 0;
        file_path(c, alt, path);
        touch(path);
}

static bool is_recent(const struct stat *st)
{
        return llabs((long long)(time(NULL) - st->st_mtime)) < MISSING_AGE_S;
}

enum debug_cached debug_cache_look(const struct debug_cache *c, const char *build_id)
{
        char path[PATH_MAX];
        struct stat st;

        file_path(c, build_id, path);
        if (touch(path)) {
                touch_linked(c, build_id);
                return DEBUG_CACHED;
        }
        path_below(c, MISSING, build_id, path);
        if (stat(path, &st) < 0)
                return DEBUG_UNKNOWN;
        return is_recent(&st) ? DEBUG_MISSING : DEBUG_UNKNOWN;
}

int debug_cache_set_missing(const struct debug_cache *c, const char *build_id)
{
        char path[PATH_MAX];

        path_below(c, MISSING, build_id, path);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        return fd < 0 || futimens(fd, NULL) < 0 ? -errno : 0;
}

static bool is_stale(const struct debug_cache *c, const char *name, const char *id)
{
        char path[PATH_MAX];
        struct stat st;

        if (strcmp(name, LINKS) == 0) {
                file_path(c, id, path);
                return access(path, F_OK) < 0;
        }
        path_below(c, name, id, path);
        return lstat(path, &st) == 0 && !is_recent(&st);
}

static void tidy(const struct debug_cache *c, const char *name)
{
        char path[PATH_MAX];

        path_below(c, name, "", path);
        DIR *dir = opendir(path);
        if (!dir)
                return;
        for (struct dirent *e; (e = readdir(dir));)
                if (e->d_name[0] != '.' && strlen(e->d_name) < BUILD_ID_TEXT_MAX &&
                    is_stale(c, name, e->d_name))
                        unlinkat(dirfd(dir), e->d_name, 0);
        closedir(dir);
}

void debug_cache_tidy(const struct debug_cache *c)
{
        tidy(c, MISSING);
        tidy(c, LINKS);
}

/* -- room -- */

struct cached_file {
        char *path;
        int64_t used_s;
        uint64_t size;
};

struct cached_files {
        struct cached_file *file;
        uint32_t n, cap;
        uint64_t bytes;
};

static int by_use(const void *a, const void *b)
{
        const struct cached_file *x = a, *y = b;

        return x->used_s < y->used_s ? -1 : x->used_s > y->used_s;
}

static void files_free(struct cached_files *l)
{
        for (uint32_t i = 0; i < l->n; i++)
                free(l->file[i].path);
        free(l->file);
}

static int list_files(const struct debug_cache *c, struct cached_files *l)
{
        char path[PATH_MAX];
        char *const roots[] = {path, NULL};
        int r = 0;

        snprintf(path, sizeof(path), "%s/" FILES, c->directory);
        FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
        if (!fts)
                return -errno;
        for (FTSENT *e; r >= 0 && (e = fts_read(fts));) {
                if (e->fts_info != FTS_F)
                        continue;
                char *copy = strdup(e->fts_path);
                if (!copy || ARRAY_ROOM(l->file, l->cap, l->n + 1) < 0) {
                        free(copy);
                        r = -ENOMEM;
                        break;
                }
                uint64_t size = (uint64_t)e->fts_statp->st_blocks * 512;
                l->file[l->n++] = (struct cached_file){copy, e->fts_statp->st_mtime, size};
                l->bytes += size;
        }
        fts_close(fts);
        return r;
}

static int make_room(const struct debug_cache *c, uint64_t size, int64_t since_s)
{
        _cleanup_(files_free) struct cached_files l = {0};

        if (size > c->max)
                return -ENOSPC;
        int r = list_files(c, &l);
        if (r < 0)
                return r;
        if (l.n)
                qsort(l.file, l.n, sizeof(*l.file), by_use);
        for (uint32_t i = 0; i < l.n && l.bytes + size > c->max; i++) {
                if (l.file[i].used_s >= since_s)
                        return -ENOSPC;
                if (unlink(l.file[i].path) < 0)
                        return -errno;
                l.bytes -= l.file[i].size;
        }
        return 0;
}

int debug_cache_add(const struct debug_cache *c, const char *build_id, const char *temporary,
                    int64_t since_s)
{
        char path[PATH_MAX], name[sizeof(FILES) + 4];
        struct stat st;

        file_path(c, build_id, path);
        snprintf(name, sizeof(name), FILES "/%.2s", build_id);
        int r = stat(temporary, &st) < 0 ? -errno : make_room(c, (uint64_t)st.st_blocks * 512, since_s);
        if (r >= 0)
                r = make_below(c, name);
        if (r >= 0 && rename(temporary, path) < 0)
                r = -errno;
        if (r < 0)
                unlink(temporary);
        return r;
}

int debug_cache_link(const struct debug_cache *c, const char *build_id, const char *alt_build_id)
{
        char path[PATH_MAX];

        path_below(c, LINKS, build_id, path);
        unlink(path);
        return symlink(alt_build_id, path) < 0 ? -errno : 0;
}
