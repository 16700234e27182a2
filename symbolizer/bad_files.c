#include "symbolizer/bad_files.h"

#include <string.h>

#include "base/cleanup.h"

/* A user who makes bad files all day would cost a worker each time. */
#define MAX_OF_ONE_OWNER 32

static void copy_printable(char *to, size_t size, const char *path)
{
        size_t n = strlen(path), skip = n >= size ? n - size + 1 : 0;

        for (n = 0; path[skip + n]; n++) {
                unsigned char c = (unsigned char)path[skip + n];

                to[n] = c < 0x20 || c == 0x7f ? '?' : (char)c;
        }
        to[n] = 0;
}

const struct bad_file *bad_files_add(struct bad_files *b, const struct stat *st, const struct sym_info *info,
                                     const char *path, int error, enum bad_part part)
{
        struct bad_file *f = &b->file[b->n++ % BAD_FILES_MAX];

        *f = (struct bad_file){
                        .dev = st->st_dev,
                        .inode = st->st_ino,
                        .size = st->st_size,
                        .mtime = st->st_mtim,
                        .owner = st->st_uid,
                        .error = error,
                        .part = part,
        };
        if (info) {
                f->build_id_len = info->build_id_len;
                memcpy(f->build_id, info->build_id, sizeof(f->build_id));
        }
        copy_printable(f->path, sizeof(f->path), path ? path : "");
        return f;
}

static bool is_same(const struct bad_file *f, const struct stat *st, const struct sym_info *info)
{
        if (f->dev == st->st_dev && f->inode == st->st_ino && f->size == st->st_size &&
            f->mtime.tv_sec == st->st_mtim.tv_sec && f->mtime.tv_nsec == st->st_mtim.tv_nsec)
                return true;
        /* Of one owner: nobody can make another's file look bad by copying its build ID. */
        return info && f->owner == st->st_uid && info->build_id_len > 0 &&
               f->build_id_len == info->build_id_len &&
               memcmp(f->build_id, info->build_id, f->build_id_len) == 0;
}

const struct bad_file *bad_files_find(const struct bad_files *b, const struct stat *st,
                                      const struct sym_info *info)
{
        uint64_t n = MIN_OF(b->n, (uint64_t)BAD_FILES_MAX);

        for (uint64_t i = 0; i < n; i++)
                if (is_same(&b->file[i], st, info))
                        return &b->file[i];
        return NULL;
}

bool bad_files_distrusts(const struct bad_files *b, uid_t owner)
{
        uint64_t n = MIN_OF(b->n, (uint64_t)BAD_FILES_MAX);
        uint32_t of_owner = 0;

        for (uint64_t i = 0; i < n; i++)
                of_owner += b->file[i].owner == owner;
        return owner != 0 && of_owner >= MAX_OF_ONE_OWNER;
}
