/* What the modules of the program export: addresses of symbols, by the hash tables of their dynamic sections. */
#include <elf.h>
#include <string.h>

#include "syscalls/recorder.h"

#define HEADERS 64u           /* program headers of a module */
#define ENTRIES 128u          /* of its dynamic section */

uint64_t word_of(struct tracee *thread, uint64_t address)
{
    uint64_t word = 0;
    return memory_read(thread, address, &word, sizeof word) == sizeof word ? word : 0;
}

bool module_begins(const char *path, const char *beginning)
{
    const char *name = strrchr(path, '/');
    return name && strncmp(name + 1, beginning, strlen(beginning)) == 0;
}

bool symbols_of(struct tracee *thread, uint64_t base, struct symbols *symbols)
{
    Elf64_Ehdr file;
    Elf64_Phdr headers[HEADERS];
    Elf64_Dyn entries[ENTRIES];
    *symbols = (struct symbols){.bias = base};
    if (!base || memory_read(thread, base, &file, sizeof file) != sizeof file || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
        file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_phentsize != sizeof *headers || file.e_phnum > HEADERS)
        return false;
    size_t size = file.e_phnum * sizeof *headers, dynamic = 0, many = 0;
    if (memory_read(thread, base + file.e_phoff, headers, size) != size)
        return false;
    for (unsigned i = 0; i < file.e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0)
            symbols->bias = base - headers[i].p_vaddr;
        if (headers[i].p_type == PT_DYNAMIC) {
            dynamic = headers[i].p_vaddr;
            many = headers[i].p_memsz / sizeof *entries;
        }
    }
    many = many < ENTRIES ? many : ENTRIES;
    if (memory_read(thread, symbols->bias + dynamic, entries, many * sizeof *entries) != many * sizeof *entries)
        return false;
    for (size_t i = 0; i < many && entries[i].d_tag != DT_NULL; i++) {
        uint64_t at = entries[i].d_un.d_ptr; /* the dynamic linker of some systems has added the bias */
        at += at < symbols->bias ? symbols->bias : 0;
        if (entries[i].d_tag == DT_STRTAB)
            symbols->names = at;
        if (entries[i].d_tag == DT_SYMTAB)
            symbols->table = at;
        if (entries[i].d_tag == DT_GNU_HASH)
            symbols->hashes = at;
    }
    return symbols->names && symbols->table && symbols->hashes;
}

uint64_t symbol(struct tracee *thread, const struct symbols *symbols, const char *name)
{
    uint32_t head[4], hash = 5381, index = 0, other = 0; /* head: buckets, the first symbol, words and shift of a filter */
    char found[64];
    for (const char *letter = name; *letter; letter++)
        hash = hash * 33 + (unsigned char)*letter;
    if (memory_read(thread, symbols->hashes, head, sizeof head) != sizeof head || !head[0])
        return 0;
    uint64_t buckets = symbols->hashes + sizeof head + 8 * (uint64_t)head[2], chains = buckets + 4 * (uint64_t)head[0];
    if (memory_read(thread, buckets + 4 * (uint64_t)(hash % head[0]), &index, sizeof index) != sizeof index)
        return 0;
    for (; index >= head[1]; index++) {
        Elf64_Sym entry;
        if (memory_read(thread, chains + 4 * (uint64_t)(index - head[1]), &other, sizeof other) != sizeof other)
            return 0;
        if ((other | 1) == (hash | 1) &&
            memory_read(thread, symbols->table + sizeof entry * (uint64_t)index, &entry, sizeof entry) == sizeof entry &&
            memory_read(thread, symbols->names + entry.st_name, found, sizeof found) >= strlen(name) + 1 &&
            strcmp(found, name) == 0)
            return entry.st_shndx ? symbols->bias + entry.st_value : 0;
        if (other & 1)
            return 0;
    }
    return 0;
}
