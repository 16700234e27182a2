#include "daemon/object_entry.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define MAX_VDSO (64u << 10)

static uint64_t page_down(uint64_t x)
{
        return x & ~(uint64_t)UNWIND_PAGE_MASK;
}

bool object_entry_bias(const struct object_entry *o, uint64_t start, uint64_t offset, uint64_t *ret)
{
        const struct sym_info *info = o->object.symbols ? symobj_info(o->object.symbols) : NULL;
        const struct sym_segment *found = NULL;

        if (!info)
                return false;
        for (uint32_t i = 0; i < info->n_segments; i++) {
                const struct sym_segment *s = &info->segment[i];
                if (offset < page_down(s->offset) || offset >= s->offset + s->filesz)
                        continue;
                /* Two segments may share a page of the file: the one that begins on it is meant. */
                if (!found || page_down(s->offset) == offset)
                        found = s;
        }
        if (!found)
                return false;
        *ret = start - offset + found->offset - found->vaddr;
        return true;
}

void object_entry_text(struct object_entry *e, const struct sym_info *info)
{
        struct object *o = &e->object;

        o->text_start = UINT64_MAX;
        for (uint32_t i = 0; i < info->n_segments; i++) {
                const struct sym_segment *s = &info->segment[i];
                if (s->vaddr < o->text_start) {
                        o->text_start = s->vaddr;
                        o->text_offset = s->offset;
                }
                o->text_end = MAX_OF(o->text_end, s->vaddr + s->memsz);
        }
        if (!info->n_segments)
                o->text_start = 0;
}

int object_vdso_file(uint64_t *ret_size)
{
        const Elf64_Ehdr *image = (const void *)getauxval(AT_SYSINFO_EHDR);

        if (!image)
                return -ENOENT;
        uint64_t size = image->e_shoff + (uint64_t)image->e_shnum * image->e_shentsize;
        if (size > MAX_VDSO)
                return -EFBIG;
        _cleanup_close_ int fd = memfd_create("vdso", MFD_CLOEXEC);
        if (fd < 0)
                return -errno;
        int r = write_all(fd, image, size);
        if (r < 0)
                return r;
        *ret_size = size;
        return TAKE_FD(fd);
}

struct object *object_ref(struct object *o)
{
        if (o)
                object_entry_of(o)->refs++;
        return o;
}

struct object *object_unref(struct object *o)
{
        if (o)
                object_entry_of(o)->refs--;
        return NULL;
}
