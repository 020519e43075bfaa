/* The ids of inodes and the names of the watched folder, as the recorded calls make them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "syscalls/recorder.h"

struct name {
    struct name *next;
    uint32_t folder, inode;
    uint64_t hash;
    char text[];
};

static struct inode **inodes; /* by id */
static uint32_t inode_room;
static uint32_t *slots; /* hash table of ids */
static uint32_t slot_count;
static struct name **names;
static size_t name_slots, name_count;

static void *grown(void *old, size_t bytes)
{
    void *now = realloc(old, bytes);
    if (!now)
        die("no memory");
    return now;
}

static uint32_t slot_of(dev_t device, ino_t number)
{
    uint64_t mixed = ((uint64_t)number ^ (uint64_t)device << 40) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(mixed >> 32) & (slot_count - 1);
    while (slots[at] && (inodes[slots[at]]->number != number || inodes[slots[at]]->device != device))
        at = (at + 1) & (slot_count - 1);
    return at;
}

static void more_slots(void)
{
    uint32_t count = inodes_count();
    if (slot_count > 2 * (count + 1))
        return;
    slot_count = slot_count ? slot_count * 4 : 1024;
    free(slots);
    slots = calloc(slot_count, sizeof *slots);
    if (!slots)
        die("no memory");
    for (uint32_t id = 1; id <= count; id++)
        slots[slot_of(inodes[id]->device, inodes[id]->number)] = id; /* a later one with the same number counts */
}

uint32_t inodes_count(void)
{
    return trace_header()->next_file - 1;
}

struct inode *inode_at(uint32_t id)
{
    return inodes[id];
}

struct inode *inode_of(const struct stat *state)
{
    uint32_t id = slots[slot_of(state->st_dev, state->st_ino)];
    return id && !inodes[id]->gone ? inodes[id] : id && state->st_nlink == 0 ? inodes[id] : NULL;
}

dev_t inodes_device(void)
{
    return inodes[1]->device;
}

struct inode *inode_new(struct tracee *thread, const struct stat *state, uint8_t flags, const char *path)
{
    more_slots();
    uint32_t id = trace_header()->next_file;
    if (id >= inode_room) {
        inode_room = inode_room ? 2 * inode_room : 1024;
        inodes = grown(inodes, inode_room * sizeof *inodes);
    }
    struct inode *inode = grown(NULL, sizeof *inode);
    *inode = (struct inode){.device = state->st_dev, .number = state->st_ino, .id = id, .mode = state->st_mode};
    inodes[id] = inode;
    slots[slot_of(state->st_dev, state->st_ino)] = id;
    trace_header()->next_file = id + 1;
    struct cc_event event = {.kind = CC_INODE_DEF,
                             .file = id,
                             .aux = state->st_mode,
                             .flags = flags,
                             .offset = S_ISREG(state->st_mode) ? (uint64_t)state->st_size : 0};
    trace_bytes(thread, event, NULL, 0, path, strlen(path));
    return inode;
}

static uint64_t hash_of(uint32_t folder, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u ^ folder;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

static struct name **find(uint32_t folder, const char *name)
{
    uint64_t hash = hash_of(folder, name);
    struct name **at = &names[hash & (name_slots - 1)];
    while (*at && ((*at)->hash != hash || (*at)->folder != folder || strcmp((*at)->text, name) != 0))
        at = &(*at)->next;
    return at;
}

static void more_names(void)
{
    if (name_count < name_slots)
        return;
    size_t wider_slots = name_slots ? 4 * name_slots : 1024;
    struct name **wider = calloc(wider_slots, sizeof *wider);
    if (!wider)
        die("no memory");
    for (size_t i = 0; i < name_slots; i++) {
        for (struct name *name = names[i], *next; name; name = next) {
            next = name->next;
            name->next = wider[name->hash & (wider_slots - 1)];
            wider[name->hash & (wider_slots - 1)] = name;
        }
    }
    free(names);
    names = wider;
    name_slots = wider_slots;
}

uint32_t name_get(uint32_t folder, const char *name)
{
    struct name *found = *find(folder, name);
    return found ? found->inode : 0;
}

void name_remove(uint32_t folder, const char *name)
{
    struct name **at = find(folder, name), *found = *at;
    if (!found)
        return;
    struct inode *inode = inodes[found->inode];
    inode->gone = inode->links && --inode->links == 0;
    if (inode->latest == found)
        inode->latest = NULL;
    *at = found->next;
    free(found);
    name_count--;
}

void name_set(uint32_t folder, const char *name, uint32_t inode)
{
    more_names();
    /* it counts before the name that it replaces goes: of an inode that is renamed the last name never goes */
    inodes[inode]->links++;
    inodes[inode]->gone = false;
    name_remove(folder, name);
    size_t length = strlen(name) + 1;
    struct name *made = grown(NULL, sizeof *made + length);
    uint64_t hash = hash_of(folder, name);
    *made = (struct name){.folder = folder, .inode = inode, .hash = hash, .next = names[hash & (name_slots - 1)]};
    memcpy(made->text, name, length);
    names[hash & (name_slots - 1)] = made;
    inodes[inode]->latest = made;
    name_count++;
}

const char *inode_path(uint32_t folder, const char *name)
{
    static char buffer[2 * PATH_MAX];
    char *at = buffer + sizeof buffer - 1 - strlen(name);
    memcpy(at, name, strlen(name) + 1);
    for (const struct name *latest = inodes[folder]->latest; latest; latest = inodes[latest->folder]->latest) {
        size_t length = strlen(latest->text);
        if ((size_t)(at - buffer) < length + 1)
            break; /* deeper than any path */
        *--at = '/';
        at -= length;
        memcpy(at, latest->text, length);
    }
    return at;
}

const char *inode_shown(const struct inode *inode)
{
    return inode->id == 1 ? "." : inode->latest ? inode_path(inode->latest->folder, inode->latest->text) : "";
}

static int by_bytes(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* CC_INODE_DENSE if a file has no hole. One that cannot be read is taken to have some. */
static uint8_t dense(int folder, const char *name, const struct stat *state)
{
    if (!S_ISREG(state->st_mode) || state->st_size == 0)
        return 0;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    off_t hole = lseek(fd, 0, SEEK_HOLE);
    close(fd);
    return hole >= state->st_size ? CC_INODE_DENSE : 0;
}

static void scan(int fd, uint32_t folder, const char *path)
{
    struct dirent **entries;
    int count = scandirat(fd, ".", &entries, NULL, by_bytes);
    if (count < 0)
        die("the watched folder cannot be read");
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        struct stat state;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && fstatat(fd, name, &state, AT_SYMLINK_NOFOLLOW) == 0) {
            size_t length = strlen(path) + strlen(name) + 2;
            char *below = grown(NULL, length);
            stpcpy(stpcpy(stpcpy(below, path), *path ? "/" : ""), name);
            struct inode *inode = inode_of(&state);
            if (!inode) {
                inode = inode_new(NULL, &state, CC_INODE_EXISTED | dense(fd, name, &state), below);
            } else { /* another name of it */
                struct cc_event again = {
                    .kind = CC_INODE_DEF, .file = inode->id, .aux = state.st_mode, .flags = CC_INODE_EXISTED, .offset = (uint64_t)state.st_size};
                trace_bytes(NULL, again, NULL, 0, below, strlen(below));
            }
            name_set(folder, name, inode->id);
            if (S_ISDIR(state.st_mode)) {
                int inside = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (inside >= 0 && state.st_dev == inodes_device())
                    scan(inside, inode->id, below);
                else
                    trace_note("unwatched", below); /* it cannot be read, or is another file system */
                if (inside >= 0)
                    close(inside);
            }
            free(below);
        }
        free(entries[i]);
    }
    free(entries);
}

void inodes_scan(int folder)
{
    struct stat state;
    if (fstat(folder, &state) != 0)
        die("the watched folder cannot be read");
    more_slots();
    more_names();
    inode_new(NULL, &state, CC_INODE_EXISTED, "");
    scan(folder, 1, "");
}
