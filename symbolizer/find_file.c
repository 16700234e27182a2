/* Where separate files are, by the conventions of gdb (manual, "Debugging Information in Separate Files"),
 * of dwz, and of split DWARF: in the process's own root first, then in ours.
 *
 * Paths are resolved below the root of the process, so that a symbolic link in a container does not lead to
 * our files; nothing but a regular file is opened, and no special file touched. Objects and links are made
 * by users, who see what is found in their profiles, and we may read what they may not: a file is taken only
 * when everybody may read it by its mode, or when it is of the object's owner, or the object root's. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "symbolizer/finder.h"

struct search {
        const struct wire_want *want;
        const char *const *debug_dirs;
        const char *path; /* of the object */
        size_t directory; /* length of the part of it before the last slash */
        uid_t owner;      /* likewise */
        int root;
        uint32_t to_skip; /* files that are there but were asked for before */
        int found;
};

static int open_below(int root, const char *path, uint64_t flags)
{
        struct open_how how = {.flags = flags | O_CLOEXEC,
                               .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

        return fd < 0 ? -errno : (int)fd;
}

/* Looks at the place first (O_PATH opens no device and no FIFO), and opens what it has seen. */
int open_regular(int root, const char *path, int flags)
{
        _cleanup_close_ int place = open_below(root, path, O_PATH | (unsigned)flags);
        char self[64];
        struct stat st;
        int fd;

        if (place < 0)
                return place;
        if (fstat(place, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -ENOENT;
        snprintf(self, sizeof(self), "/proc/self/fd/%d", place);
        fd = open(self, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static bool may_be_shown(int fd, uid_t owner)
{
        struct stat st;

        return fstat(fd, &st) == 0 && (owner == 0 || st.st_uid == owner || st.st_mode & S_IROTH);
}

/* True: the search is over. */
static bool try_path(struct search *s, struct buf *path)
{
        int fd = buf_error(path) < 0 ? -ENOMEM : open_regular(s->root, buf_text(path), 0);

        buf_clear(path);
        if (fd < 0)
                return false;
        if (!may_be_shown(fd, s->owner)) {
                close(fd);
                return false;
        }
        if (s->to_skip > 0) {
                s->to_skip--;
                close(fd);
                return false;
        }
        s->found = fd;
        return true;
}

static void add_directory(struct search *s, struct buf *b)
{
        buf_add(b, s->path, s->directory);
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

static bool try_build_id(struct search *s)
{
        _cleanup_buf_ struct buf b = {};
        const struct wire_want *w = s->want;

        char id[BUILD_ID_TEXT_MAX];

        if (w->build_id_len < 2)
                return false;
        build_id_text(w->build_id, w->build_id_len, id);
        for (const char *const *dir = s->debug_dirs; *dir; dir++) {
                buf_addf(&b, "%s/" BUILD_ID_FILE, *dir, id, id + 2);
                if (try_path(s, &b))
                        return true;
        }
        return false;
}

static bool try_debug_link(struct search *s)
{
        _cleanup_buf_ struct buf b = {};
        const char *name = base_name(s->want->name);

        if (!*name)
                return false;
        add_directory(s, &b);
        buf_addf(&b, "/%s", name);
        if (try_path(s, &b))
                return true;
        add_directory(s, &b);
        buf_addf(&b, "/.debug/%s", name);
        if (try_path(s, &b))
                return true;
        for (const char *const *dir = s->debug_dirs; *dir; dir++) {
                buf_adds(&b, *dir);
                add_directory(s, &b);
                buf_addf(&b, "/%s", name);
                if (try_path(s, &b))
                        return true;
        }
        return false;
}

/* A link to a dwz file is absolute, or relative to the file it is in: the object, or its debug file. */
static bool try_alt(struct search *s)
{
        _cleanup_buf_ struct buf b = {};
        const char *name = s->want->name;

        if (name[0] == '/') {
                buf_adds(&b, name);
                if (try_path(s, &b))
                        return true;
        } else if (name[0]) {
                add_directory(s, &b);
                buf_addf(&b, "/%s", name);
                if (try_path(s, &b))
                        return true;
        }
        for (const char *const *dir = s->debug_dirs; *dir; dir++) {
                if (name[0] && name[0] != '/') {
                        buf_addf(&b, "%s/.build-id/00/%s", *dir, name);
                        if (try_path(s, &b))
                                return true;
                        buf_adds(&b, *dir);
                        add_directory(s, &b);
                        buf_addf(&b, "/%s", name);
                        if (try_path(s, &b))
                                return true;
                }
                buf_addf(&b, "%s/.dwz/%s", *dir, base_name(name));
                if (try_path(s, &b))
                        return true;
        }
        return try_build_id(s);
}

static bool try_dwp(struct search *s)
{
        _cleanup_buf_ struct buf b = {};

        buf_addf(&b, "%s.dwp", s->path);
        return try_path(s, &b);
}

static bool try_dwo(struct search *s)
{
        _cleanup_buf_ struct buf b = {};
        const struct wire_want *w = s->want;

        if (w->name[0] != '/')
                buf_addf(&b, "%s/", w->directory);
        buf_adds(&b, w->name);
        if (try_path(s, &b))
                return true;
        add_directory(s, &b);
        buf_addf(&b, "/%s", base_name(w->name));
        return try_path(s, &b);
}

static bool search_root(struct search *s)
{
        switch (s->want->kind) {
        case WIRE_WANT_DEBUG:
                return try_build_id(s) || try_debug_link(s);
        case WIRE_WANT_ALT:
                return try_alt(s);
        case WIRE_WANT_DWP:
                return try_dwp(s);
        case WIRE_WANT_DWO:
                return try_dwo(s);
        default:
                return false;
        }
}

int find_file(const struct wire_want *want, const char *path, uid_t owner, const char *root,
              const char *const *debug_dirs)
{
        const char *roots[] = {root && *root ? root : NULL, "/"};
        struct search s = {.want = want,
                           .debug_dirs = debug_dirs,
                           .path = path,
                           .owner = owner,
                           .to_skip = want->attempt};
        const char *slash = strrchr(path, '/');

        s.directory = slash ? (size_t)(slash - path) : 0;
        for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
                _cleanup_close_ int fd = roots[i] ? open(roots[i], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

                if (fd < 0)
                        continue;
                s.root = fd;
                if (search_root(&s))
                        return s.found;
        }
        return -ENOENT;
}
