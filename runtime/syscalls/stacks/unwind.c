/* How to leave a stack frame: what .eh_frame states of one address of a module, found with the table of .eh_frame_hdr. Both are
 * read from the program's memory, so that a file that was stripped, removed or replaced since is no hindrance; nothing in them
 * is trusted. See DWARF 4, section 6.4, and Linux Standard Base 5.0, section 10.6. */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define ENTRY 4096u      /* bytes of a CIE or an FDE that are read; longer ones are rare */
#define HEADERS 64u      /* of a module: program headers, sections */
#define LARGEST (1u << 26) /* bytes of an .eh_frame that is read as a whole */
#define ROWS 8u          /* that may be remembered at a time */

enum { POINTER_ABSOLUTE = 0x00, POINTER_U4 = 0x03, POINTER_S4 = 0x0b, POINTER_S8 = 0x0c, POINTER_RELATIVE = 0x10, TABLE_S4 = 0x3b };
enum { DWARF_DEREF = 0x06, DWARF_REGISTER = 0x70 }; /* operations of expressions */

/* Bytes of the program; reading beyond their end yields zeros and sets `bad`. */
struct bytes {
    const unsigned char *at, *end;
    bool bad;
};

static uint64_t fixed(struct bytes *bytes, size_t size)
{
    uint64_t value = 0;
    if ((size_t)(bytes->end - bytes->at) < size) {
        bytes->bad = true;
        bytes->at = bytes->end;
        return 0;
    }
    memcpy(&value, bytes->at, size);
    bytes->at += size;
    return value;
}

static int64_t number(struct bytes *bytes, bool is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0;
    unsigned char part;
    do {
        part = (unsigned char)fixed(bytes, 1);
        if (shift < 64)
            value |= (uint64_t)(part & 0x7f) << shift;
        shift += 7;
    } while (part & 0x80);
    if (is_signed && shift < 64 && part & 0x40)
        value |= ~(uint64_t)0 << shift;
    return (int64_t)value;
}

static struct bytes block(struct bytes *bytes)
{
    uint64_t size = (uint64_t)number(bytes, false);
    struct bytes inner = {bytes->at, bytes->end, false};
    if (size > (uint64_t)(bytes->end - bytes->at)) {
        bytes->bad = inner.bad = true;
        size = 0;
    }
    inner.end = bytes->at += size;
    return inner;
}

/* An encoded pointer; `place`: the address that a relative one counts from. */
static uint64_t pointer(struct bytes *bytes, unsigned encoding, uint64_t place)
{
    uint64_t value = 0;
    switch (encoding & 0x0f) {
    case POINTER_ABSOLUTE:
    case POINTER_S8:
        value = fixed(bytes, 8);
        break;
    case POINTER_U4:
        value = fixed(bytes, 4);
        break;
    case POINTER_S4:
        value = (uint64_t)(int32_t)fixed(bytes, 4);
        break;
    default:
        bytes->bad = true;
    }
    if ((encoding & 0xf0) == POINTER_RELATIVE)
        value += place;
    else if (encoding & 0xf0)
        bytes->bad = true;
    return value;
}

/* What a CIE states for its FDEs. */
struct common {
    uint64_t code_unit;
    int64_t data_unit;
    unsigned encoding;
    bool augmented, is_signal;
    struct frame_rule first;
};

/* An offset that counts in units of the CIE. The product wraps where the numbers are damaged: signed, it would be undefined. */
static int64_t scaled(struct bytes *bytes, bool is_signed, const struct common *common)
{
    return (int64_t)((uint64_t)number(bytes, is_signed) * (uint64_t)common->data_unit);
}

static int place_of_register(uint64_t number)
{
    switch (number) {
    case 3: return KEPT_RBX;
    case 6: return KEPT_RBP;
    case 7: return KEPT_RSP;
    case 12: case 13: case 14: case 15: return KEPT_R12 + (int)number - 12;
    case 16: return KEPT_RIP;
    default: return -1;
    }
}

/* A register plus an offset, perhaps loaded from there: the only expressions that compilers write for frames. */
static bool simple(struct bytes expression, unsigned char *base, int32_t *offset, bool *loaded)
{
    uint64_t operation = fixed(&expression, 1);
    int place = place_of_register(operation - DWARF_REGISTER);
    *offset = (int32_t)number(&expression, true);
    *loaded = expression.at < expression.end && fixed(&expression, 1) == DWARF_DEREF;
    *base = (unsigned char)place;
    return place >= 0 && !expression.bad && expression.at == expression.end;
}

static void save(struct frame_rule *rule, uint64_t number, enum frame_saved how, int64_t offset)
{
    int place = place_of_register(number);
    if (place >= 0)
        rule->kept[place] = (struct frame_place){.how = (unsigned char)how, .offset = (int32_t)offset};
}

static void set_base(struct frame_rule *rule, uint64_t number)
{
    int place = place_of_register(number);
    rule->base = (unsigned char)(place < 0 ? KEPT_REGISTERS : place);
    rule->loaded = false;
}

/* An instruction that moves on in the code, by `advance` units, or does nothing; false for others. */
static bool moves(unsigned operation, unsigned low, struct bytes *code, uint64_t *advance)
{
    switch (operation) {
    case 0x00: return true;
    case 0x02: *advance = fixed(code, 1); return true;
    case 0x03: *advance = fixed(code, 2); return true;
    case 0x04: *advance = fixed(code, 4); return true;
    case 0x2e: number(code, false); return true;
    case 0x40: *advance = low; return true;
    default: return false;
    }
}

/* An instruction on what the frame is counted from; false for others. */
static bool sets_base(unsigned operation, struct bytes *code, const struct common *common, struct frame_rule *rule)
{
    switch (operation) {
    case 0x0c:
        set_base(rule, (uint64_t)number(code, false));
        rule->offset = (int32_t)number(code, false);
        return true;
    case 0x0d: set_base(rule, (uint64_t)number(code, false)); return true;
    case 0x0e: rule->offset = (int32_t)number(code, false); return true;
    case 0x0f:
        if (!simple(block(code), &rule->base, &rule->offset, &rule->loaded))
            rule->base = KEPT_REGISTERS;
        return true;
    case 0x12:
        set_base(rule, (uint64_t)number(code, false));
        rule->offset = (int32_t)scaled(code, true, common);
        return true;
    case 0x13: rule->offset = (int32_t)scaled(code, true, common); return true;
    default: return false;
    }
}

static void save_by_expression(struct bytes *code, struct frame_rule *rule)
{
    int place = place_of_register((uint64_t)number(code, false));
    struct frame_place saved = {.how = FRAME_STORED_AT};
    bool loaded;
    if (!simple(block(code), &saved.base, &saved.offset, &loaded) || loaded)
        saved.how = FRAME_LOST;
    if (place >= 0)
        rule->kept[place] = saved;
}

static bool names_register(unsigned operation)
{
    switch (operation) {
    case 0x05: case 0x06: case 0x07: case 0x08: case 0x10: case 0x11: case 0x80: case 0xc0: return true;
    default: return false;
    }
}

/* An instruction on where a register of the caller is kept; false for others. */
static bool saves(unsigned operation, unsigned low, struct bytes *code, const struct common *common,
                  struct frame_rule *rule)
{
    if (!names_register(operation))
        return false;
    if (operation == 0x10) {
        save_by_expression(code, rule);
        return true;
    }
    uint64_t which = operation >= 0x80 ? low : (uint64_t)number(code, false);
    int place = place_of_register(which);
    switch (operation) {
    case 0x80:
    case 0x05: save(rule, which, FRAME_STORED, scaled(code, false, common)); break;
    case 0x11: save(rule, which, FRAME_STORED, scaled(code, true, common)); break;
    case 0x07: save(rule, which, FRAME_LOST, 0); break;
    case 0x08: save(rule, which, FRAME_SAME, 0); break;
    default: /* 0xc0, 0x06: as the CIE states */
        if (place >= 0)
            rule->kept[place] = common->first.kept[place];
    }
    return true;
}

/* Runs instructions until they describe an address beyond `until` bytes from their start. */
static bool run(struct bytes code, const struct common *common, uint64_t until, struct frame_rule *rule)
{
    struct frame_rule rows[ROWS];
    unsigned depth = 0;
    for (uint64_t at = 0; code.at < code.end && !code.bad && at <= until;) {
        unsigned byte = (unsigned)fixed(&code, 1), low = byte & 0x3f;
        unsigned operation = byte & 0xc0 ? byte & 0xc0 : byte;
        uint64_t advance = 0;
        if (operation == 0x0a && depth < ROWS)
            rows[depth++] = *rule;
        else if (operation == 0x0b && depth > 0)
            *rule = rows[--depth];
        else if (!moves(operation, low, &code, &advance) && !sets_base(operation, &code, common, rule) &&
                 !saves(operation, low, &code, common, rule))
            return false;
        at += advance * common->code_unit;
    }
    return !code.bad;
}

/* The body of a CIE or an FDE, after its length; false for what is not one. */
static bool body_of(struct tracee *thread, uint64_t address, unsigned char *copy, struct bytes *body)
{
    uint32_t size = 0;
    if (memory_read(thread, address, &size, sizeof size) != sizeof size || size < 4 || size > ENTRY)
        return false;
    *body = (struct bytes){copy, copy + size, false};
    return memory_read(thread, address + 4, copy, size) == size;
}

static bool common_of(struct tracee *thread, uint64_t address, struct common *common)
{
    unsigned char copy[ENTRY];
    struct bytes body;
    if (!body_of(thread, address, copy, &body) || fixed(&body, 4) != 0)
        return false;
    unsigned version = (unsigned)fixed(&body, 1);
    const char *augmentation = (const char *)body.at;
    while (!body.bad && fixed(&body, 1))
        ;
    if (body.bad || (version != 1 && version != 3))
        return false;
    *common = (struct common){.code_unit = (uint64_t)number(&body, false), .encoding = POINTER_ABSOLUTE};
    common->data_unit = number(&body, true);
    uint64_t caller = version == 1 ? fixed(&body, 1) : (uint64_t)number(&body, false);
    if (place_of_register(caller) != KEPT_RIP)
        return false;
    common->augmented = *augmentation == 'z';
    if (common->augmented) {
        struct bytes data = block(&body);
        uint64_t unused;
        for (const char *letter = augmentation + 1; *letter; letter++) {
            switch (*letter) {
            case 'R': common->encoding = (unsigned)fixed(&data, 1); break;
            case 'L': fixed(&data, 1); break;
            case 'P':
                unused = fixed(&data, 1);
                pointer(&data, (unsigned)unused & 0x0f, 0);
                break;
            case 'S': common->is_signal = true; break;
            default: return false;
            }
        }
        if (data.bad)
            return false;
    } else if (*augmentation) {
        return false;
    }
    common->first.base = KEPT_REGISTERS;
    return run(body, common, 0, &common->first);
}

/* The address of the FDE for an address of code, 0 if there is none. The rows of a module's table count from its start. */
static uint64_t entry_of(struct tracee *thread, const struct frame_entries *entries, uint64_t address)
{
    struct frame_entry row, best = {0, 0};
    for (size_t low = 0, high = entries->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (entries->built) {
            row = entries->built[middle];
        } else {
            int32_t pair[2];
            if (memory_read(thread, entries->table + 12 + 8 * (uint64_t)middle, pair, sizeof pair) != sizeof pair)
                return 0;
            row = (struct frame_entry){entries->table + (uint64_t)pair[0], entries->table + (uint64_t)pair[1]};
        }
        if (row.code <= address) {
            best = row;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return best.entry;
}

static int by_code(const void *first, const void *second)
{
    uint64_t left = ((const struct frame_entry *)first)->code, right = ((const struct frame_entry *)second)->code;
    return (left > right) - (left < right);
}

static void add_entry(struct frame_entries *entries, size_t *capacity, struct frame_entry entry)
{
    if (entries->count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 256;
        struct frame_entry *wider = realloc(entries->built, *capacity * sizeof *wider);
        if (!wider)
            die("no memory");
        entries->built = wider;
    }
    entries->built[entries->count++] = entry;
}

/* The entries of .eh_frame, read from its start to its end. */
static void scan(struct tracee *thread, uint64_t start, uint64_t size, struct frame_entries *entries)
{
    unsigned char *copy = size <= LARGEST ? malloc(size) : NULL;
    struct common common;
    uint64_t known = 0;
    size_t most = 0;
    if (!copy || memory_read(thread, start, copy, size) != size)
        size = 0;
    for (uint64_t at = 0, length; at + 8 <= size; at += 4 + length) {
        struct bytes body = {copy + at, copy + size, false};
        length = fixed(&body, 4);
        uint64_t back = fixed(&body, 4), entry = start + at;
        if (length < 4 || length > size - at - 4)
            break;
        if (!back)
            continue;
        if (known != entry + 4 - back && !common_of(thread, entry + 4 - back, &common))
            continue;
        known = entry + 4 - back;
        uint64_t code = pointer(&body, common.encoding, entry + 8);
        if (body.bad)
            break;
        add_entry(entries, &most, (struct frame_entry){code, entry});
    }
    free(copy);
    if (entries->count)
        qsort(entries->built, entries->count, sizeof *entries->built, by_code);
}

/* A static program of some compilers has no table: its file knows where .eh_frame is. */
static void scan_program(struct tracee *thread, uint64_t bias, const Elf64_Ehdr *header, struct frame_entries *entries)
{
    char path[64], name[sizeof ".eh_frame"];
    Elf64_Shdr sections[HEADERS];
    size_t size = header->e_shnum * sizeof *sections;
    snprintf(path, sizeof path, "/proc/%d/exe", thread->tid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (header->e_shnum <= HEADERS && header->e_shstrndx < header->e_shnum && header->e_shentsize == sizeof *sections &&
        file >= 0 && pread(file, sections, size, (off_t)header->e_shoff) == (ssize_t)size) {
        for (unsigned i = 0; i < header->e_shnum; i++) {
            off_t at = (off_t)(sections[header->e_shstrndx].sh_offset + sections[i].sh_name);
            if (pread(file, name, sizeof name, at) == sizeof name && memcmp(name, ".eh_frame", sizeof name) == 0)
                scan(thread, bias + sections[i].sh_addr, sections[i].sh_size, entries);
        }
    }
    if (file >= 0)
        close(file);
}

void unwind_prepare(struct tracee *thread, uint64_t base, struct frame_entries *entries)
{
    Elf64_Ehdr file;
    Elf64_Phdr headers[HEADERS];
    *entries = (struct frame_entries){0};
    if (!base || memory_read(thread, base, &file, sizeof file) != sizeof file || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
        file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_phentsize != sizeof *headers || file.e_phnum > HEADERS)
        return;
    size_t size = file.e_phnum * sizeof *headers;
    if (memory_read(thread, base + file.e_phoff, headers, size) != size)
        return;
    uint64_t bias = base, table = 0;
    bool shared = false;
    for (unsigned i = 0; i < file.e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0 && bias == base)
            bias = base - headers[i].p_vaddr;
        if (headers[i].p_type == PT_GNU_EH_FRAME)
            table = headers[i].p_vaddr;
        shared |= headers[i].p_type == PT_DYNAMIC;
    }
    struct {
        unsigned char version, frames, counts, rows;
        int32_t start;
        uint32_t count;
    } head;
    if (!table && !shared) {
        scan_program(thread, bias, &file, entries);
    } else if (table && memory_read(thread, bias + table, &head, sizeof head) == sizeof head && head.version == 1 &&
               head.frames == (POINTER_RELATIVE | POINTER_S4) && head.counts == POINTER_U4 && head.rows == TABLE_S4) {
        entries->table = bias + table;
        entries->count = head.count;
    }
}

bool unwind_rule(struct tracee *thread, const struct frame_entries *entries, uint64_t address, struct frame_rule *rule)
{
    unsigned char copy[ENTRY];
    struct bytes body;
    struct common common;
    uint64_t entry = entry_of(thread, entries, address);
    if (!entry || !body_of(thread, entry, copy, &body))
        return false;
    uint64_t back = fixed(&body, 4);
    if (!back || !common_of(thread, entry + 4 - back, &common))
        return false;
    uint64_t start = pointer(&body, common.encoding, entry + 8);
    uint64_t size = pointer(&body, common.encoding & 0x0f, 0);
    if (common.augmented)
        block(&body);
    if (body.bad || address - start >= size)
        return false;
    *rule = common.first;
    if (!run(body, &common, address - start, rule) || rule->base == KEPT_REGISTERS)
        return false;
    rule->start = start;
    rule->is_signal = common.is_signal;
    return true;
}
