#include "tests/symbolizer/cfi_image.h"

#include <elf.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_SECTIONS 16

static void align(struct buf *b, size_t to)
{
        while (b->len % to)
                buf_addc(b, 0);
}

static void add_u8(struct buf *b, uint8_t v)
{
        buf_add(b, &v, sizeof(v));
}

static void add_u32(struct buf *b, uint32_t v)
{
        buf_add(b, &v, sizeof(v));
}

static void add_u64(struct buf *b, uint64_t v)
{
        buf_add(b, &v, sizeof(v));
}

static void add_uleb(struct buf *b, uint64_t v)
{
        do {
                add_u8(b, (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0)));
                v >>= 7;
        } while (v);
}

static void add_sleb(struct buf *b, int64_t v)
{
        for (;;) {
                uint8_t byte = (uint8_t)(v & 0x7f);

                v >>= 7;
                if ((v == 0 && !(byte & 0x40)) || (v == -1 && byte & 0x40)) {
                        add_u8(b, byte);
                        return;
                }
                add_u8(b, byte | 0x80);
        }
}

void image_make(struct buf *out, const struct image_options *o, const struct image_section *section,
                size_t n)
{
        Elf64_Ehdr header = {
                        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                        .e_type = o->type ? o->type : ET_EXEC,
                        .e_machine = o->machine ? o->machine : EM_X86_64,
                        .e_version = EV_CURRENT,
                        .e_entry = o->entry,
                        .e_phoff = sizeof(Elf64_Ehdr),
                        .e_ehsize = sizeof(Elf64_Ehdr),
                        .e_phentsize = sizeof(Elf64_Phdr),
                        .e_phnum = o->eh_frame_hdr ? 3 : 2,
                        .e_shentsize = sizeof(Elf64_Shdr),
        };
        Elf64_Shdr shdr[MAX_SECTIONS] = {0};
        Elf64_Phdr phdr[3] = {{.p_type = PT_LOAD,
                               .p_flags = PF_R | PF_X,
                               .p_offset = 0x1000,
                               .p_vaddr = IMAGE_TEXT,
                               .p_filesz = IMAGE_TEXT_SIZE,
                               .p_memsz = IMAGE_TEXT_SIZE},
                              {.p_type = PT_LOAD, .p_flags = PF_R, .p_vaddr = IMAGE_DATA},
                              {.p_type = PT_GNU_EH_FRAME, .p_vaddr = o->eh_frame_hdr}};
        _cleanup_buf_ struct buf names = {0};
        size_t data;

        buf_addc(&names, 0);
        buf_reserve(out, 0x1000);
        memset(out->data, 0, 0x1000);
        buf_commit(out, 0x1000);
        buf_add(out, o->text, o->text_size);
        while (out->len < 0x1000 + IMAGE_TEXT_SIZE)
                buf_addc(out, 0);
        data = out->len;
        for (size_t i = 0; i < n; i++) {
                Elf64_Shdr *s = &shdr[i + 1];

                align(out, 16);
                *s = (Elf64_Shdr){.sh_name = (uint32_t)names.len,
                                  .sh_type = SHT_PROGBITS,
                                  .sh_flags = section[i].flags | SHF_ALLOC,
                                  .sh_size = section[i].size};
                buf_adds(&names, section[i].name);
                buf_addc(&names, 0);
                if (section[i].address >= IMAGE_TEXT && section[i].address < IMAGE_TEXT + IMAGE_TEXT_SIZE) {
                        s->sh_addr = section[i].address;
                        s->sh_offset = 0x1000 + (section[i].address - IMAGE_TEXT);
                        memcpy(out->data + s->sh_offset, section[i].data, section[i].size);
                        continue;
                }
                s->sh_addr = IMAGE_DATA + (out->len - data);
                s->sh_offset = out->len;
                buf_add(out, section[i].data, section[i].size);
        }
        phdr[1].p_offset = data;
        phdr[1].p_filesz = phdr[1].p_memsz = out->len - data;
        if (!o->no_sections) {
                Elf64_Shdr *s = &shdr[n + 1];

                *s = (Elf64_Shdr){.sh_name = (uint32_t)names.len,
                                  .sh_type = SHT_STRTAB,
                                  .sh_offset = out->len};
                buf_adds(&names, ".shstrtab");
                buf_addc(&names, 0);
                s->sh_size = names.len;
                buf_add(out, names.data, names.len);
                align(out, 8);
                header.e_shoff = out->len;
                header.e_shnum = (uint16_t)(n + 2);
                header.e_shstrndx = (uint16_t)(n + 1);
                buf_add(out, shdr, (n + 2) * sizeof(*shdr));
        }
        memcpy(out->data, &header, sizeof(header));
        memcpy(out->data + sizeof(header), phdr, header.e_phnum * sizeof(*phdr));
}

static void close_entry(struct buf *b, size_t start)
{
        uint32_t length;

        while ((b->len - start) % 4)
                buf_addc(b, 0); /* DW_CFA_nop */
        length = (uint32_t)(b->len - start - 4);
        memcpy(b->data + start, &length, sizeof(length));
}

uint64_t image_cie(struct buf *b, int eh, const struct image_cie *cie)
{
        size_t start = b->len;

        add_u32(b, 0);
        add_u32(b, eh ? 0 : UINT32_MAX);
        add_u8(b, eh ? 1 : 4);
        buf_adds(b, cie->augmentation);
        add_u8(b, 0);
        if (!eh) {
                add_u8(b, 8);
                add_u8(b, 0);
        }
        add_uleb(b, cie->code_align);
        add_sleb(b, cie->data_align);
        add_uleb(b, cie->return_register);
        if (cie->augmentation[0] == 'z') {
                add_uleb(b, cie->augmentation_size);
                buf_add(b, cie->augmentation_data, cie->augmentation_size);
        }
        buf_add(b, cie->program, cie->program_size);
        close_entry(b, start);
        return start;
}

void image_fde(struct buf *b, int eh, uint64_t cie, uint64_t pc, uint64_t size, const char *augmentation,
               const void *program, size_t program_size)
{
        size_t start = b->len;

        add_u32(b, 0);
        add_u32(b, eh ? (uint32_t)(b->len - cie) : (uint32_t)cie);
        add_u64(b, pc);
        add_u64(b, size);
        if (augmentation[0] == 'z')
                add_uleb(b, 0);
        buf_add(b, program, program_size);
        close_entry(b, start);
}
