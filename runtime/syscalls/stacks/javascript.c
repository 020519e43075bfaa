/* Which functions of JavaScript ask for a call. A module of ours that Node loads first (javascript.js) reports them by access(2)
 * of a path that begins with REPORT, just before the thread makes the call, or before another thread is asked to make it: then
 * the report names the file's descriptor, or a hash of its path. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "syscalls/recorder.h"

#define REPORT "/\001crashcheck/"
#define MOST_EXPECTED 4096u /* reports of a process whose calls have not been made */

struct report {
    char call;              /* a letter, see `calls`; '*': any */
    uint64_t function;      /* of the program, in machine code, that made a call of it: only its calls are meant. 0: none yet */
    uint64_t key;           /* of an asynchronous call: what it concerns */
    size_t depth;
    struct script_frame frames[SCRIPT_DEEPEST];
    struct report *next;
};
struct opened {
    uint64_t fd;
    struct report by;
};
struct scripts {
    struct report *expected;  /* asynchronous calls that have not been made, the first asked one first */
    size_t expected_count;
    struct opened *opened;    /* who asked for a descriptor: later calls on it may have nobody else */
    size_t opened_count;
};

static const struct {
    long number;
    char letter;
    char argument;          /* of its path or, if `is_fd`, its descriptor */
    bool is_fd;
} calls[] = {
    {SYS_open, 'o', 0, false},      {SYS_openat, 'o', 1, false},   {SYS_write, 'w', 0, true},      {SYS_pwrite64, 'w', 0, true},
    {SYS_writev, 'w', 0, true},     {SYS_pwritev, 'w', 0, true},   {SYS_pwritev2, 'w', 0, true},   {SYS_ftruncate, 't', 0, true},
    {SYS_fsync, 's', 0, true},      {SYS_fdatasync, 's', 0, true}, {SYS_rename, 'r', 0, false},    {SYS_renameat, 'r', 1, false},
    {SYS_renameat2, 'r', 1, false}, {SYS_unlink, 'u', 0, false},   {SYS_unlinkat, 'u', 1, false},  {SYS_rmdir, 'd', 0, false},
    {SYS_mkdir, 'm', 0, false},     {SYS_mkdirat, 'm', 1, false},  {SYS_link, 'l', 0, false},      {SYS_linkat, 'l', 1, false},
    {SYS_symlink, 'y', 0, false},   {SYS_symlinkat, 'y', 0, false},
};

static const char letters[] = "owtsrudmlycne*"; /* n: a message is sent; e: a program is started */
#define LETTERS (sizeof letters - 1)

static size_t letter_place(char letter)
{
    const char *found = letter ? strchr(letters, letter) : NULL;
    return found ? (size_t)(found - letters) : LETTERS;
}

static uint32_t hash_of(const char *path)
{
    uint32_t hash = 0x811c9dc5u;
    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * 0x01000193u;
    return hash;
}

/* The frames of a report, one per line: line, column, where its function begins, its name, tab, its file. */
static void read_frames(struct tracee *thread, char *text, struct report *report)
{
    for (char *end; (end = strchr(text, '\n')) && report->depth < SCRIPT_DEEPEST; text = end + 1) {
        unsigned long line, column, begins;
        int name = 0;
        *end = '\0';
        char *tab = strchr(text, '\t');
        if (!tab || sscanf(text, "%lu %lu %lu %n", &line, &column, &begins, &name) != 3 || text + name >= tab || !tab[1])
            return;
        const char *file = strcmp(tab + 1, "[eval]") == 0 ? "<-e>" : strcmp(tab + 1, "[stdin]") == 0 ? "<stdin>" : tab + 1;
        if (strcmp(file, "[eval]-wrapper") == 0)
            continue;
        char both[PATH_ROOM];
        struct cc_code head = {.first_line = (uint32_t)begins};
        head.file_bytes = (uint32_t)strlen(file);
        head.name_bytes = (uint32_t)(tab - text - name);
        memcpy(both, file, head.file_bytes);
        memcpy(both + head.file_bytes, text + name, head.name_bytes);
        report->frames[report->depth++] = frame_at(thread, head, both, (uint32_t)line, (uint32_t)column);
    }
}

static struct scripts *scripts_of(struct process *process)
{
    if (!process->scripts)
        process->scripts = calloc(1, sizeof *process->scripts);
    if (!process->scripts)
        die("no memory");
    return process->scripts;
}

static void expect(struct scripts *scripts, const struct report *report)
{
    struct report *added = malloc(sizeof *added), **at = &scripts->expected;
    if (!added)
        die("no memory");
    if (scripts->expected_count == MOST_EXPECTED) { /* the first one: its call was not made, or not seen */
        struct report *dropped = scripts->expected;
        scripts->expected = dropped->next;
        free(dropped);
        scripts->expected_count--;
    }
    while (*at)
        at = &(*at)->next;
    *added = *report;
    added->next = NULL;
    *at = added;
    scripts->expected_count++;
}

static bool wants_sends;

void scripts_want_sends(void)
{
    wants_sends = true;
}

static enum then report_enter(struct tracee *thread)
{
    char path[PATH_ROOM], way, *text;
    struct report report = {0};
    if (!memory_path(thread, thread->call.argument[0], path) || strncmp(path, REPORT, sizeof REPORT - 1) != 0 ||
        sscanf(path + sizeof REPORT - 1, "%c %c %lu", &way, &report.call, &report.key) != 3 || !(text = strchr(path, '\n')))
        return SKIP;
    thread->answered = true;
    thread->answer = report.call == 'n' && !wants_sends ? -ENOENT : 0;
    read_frames(thread, text + 1, &report);
    struct scripts *scripts = scripts_of(thread->process);
    if (way == 'a') {
        expect(scripts, &report);
        return SKIP;
    }
    if (!thread->reported && !(thread->reported = calloc(LETTERS, sizeof *thread->reported)))
        die("no memory");
    size_t which = letter_place(report.call);
    if (which < LETTERS)
        thread->reported[which] = report; /* it stays: the module reports only what changes */
    else
        memset(thread->reported, 0, LETTERS * sizeof *thread->reported);
    thread->whole = report.call == '*' || report.call == 'c' ? &thread->reported[which] : NULL;
    return SKIP;
}

/* Takes a report of the call out of those that are expected. */
static bool take_expected(struct scripts *scripts, char letter, uint64_t key, struct report *found)
{
    for (struct report **at = &scripts->expected; *at; at = &(*at)->next) {
        struct report *report = *at;
        bool copies = report->call == 'c' && letter == 'o';
        if ((report->call != letter && !copies) || report->key != key)
            continue;
        *found = *report;
        *at = report->next;
        scripts->expected_count--;
        free(report);
        return true;
    }
    return false;
}

static struct opened *opened_as(struct scripts *scripts, uint64_t fd)
{
    for (size_t i = 0; i < scripts->opened_count; i++)
        if (scripts->opened[i].fd == fd)
            return &scripts->opened[i];
    return NULL;
}

void script_enter(struct tracee *thread)
{
    struct scripts *scripts = thread->process->scripts;
    size_t which = 0, many = sizeof calls / sizeof *calls;
    char path[PATH_ROOM];
    thread->asked = NULL;
    if (!scripts)
        return;
    if (!thread->latest && !(thread->latest = calloc(1, sizeof *thread->latest)))
        die("no memory");
    struct report *own = thread->reported, *latest = thread->latest;
    while (which < many && calls[which].number != thread->call.number)
        which++;
    char letter = which < many ? calls[which].letter : '\0';
    if (thread->whole && thread->whole->depth) {
        thread->asked = thread->whole;
        return;
    }
    if (own && letter && own[letter_place(letter)].depth) {
        thread->asked = &own[letter_place(letter)];
        return;
    }
    uint64_t key = which < many ? thread->call.argument[(int)calls[which].argument] : 0;
    bool is_fd = which < many && calls[which].is_fd;
    if (which == many || (!is_fd && !memory_path(thread, key, path))) {
        if (latest->call == 'c')
            thread->asked = latest; /* a copy makes several calls */
        return;
    }
    if (!take_expected(scripts, letter, is_fd ? (uint64_t)(uint32_t)key : hash_of(path), latest)) {
        if (latest->call != 'c')
            return;
    } else if (!latest->depth && is_fd) {
        const struct opened *opened = opened_as(scripts, (uint32_t)key);
        if (opened)
            *latest = opened->by;
    }
    thread->asked = latest;
}

void script_sends(struct tracee *thread)
{
    struct report *own = thread->reported;
    thread->asked = own && own[letter_place('n')].depth ? &own[letter_place('n')] : NULL;
}

void script_leave(struct tracee *thread)
{
    const struct report *asked = thread->asked;
    long number = thread->call.number, fd = thread->call.result;
    if (!asked || fd < 0 || (number != SYS_open && number != SYS_openat))
        return;
    struct scripts *scripts = thread->process->scripts;
    struct opened *opened = opened_as(scripts, (uint64_t)fd);
    if (!opened) {
        struct opened *wider = realloc(scripts->opened, (scripts->opened_count + 1) * sizeof *wider);
        if (!wider)
            die("no memory");
        scripts->opened = wider;
        opened = &wider[scripts->opened_count++];
    }
    *opened = (struct opened){(uint64_t)fd, *asked};
}

size_t script_frames(const struct tracee *thread, uint64_t function, struct script_frame *frames, size_t most)
{
    struct report *asked = thread->asked;
    size_t many = asked ? asked->depth : 0;
    bool stays = asked != thread->whole && asked != thread->latest;
    if (!many || (stays && asked->function && asked->function != function))
        return 0;
    asked->function = function;
    many = many < most ? many : most;
    if (many)
        memcpy(frames, asked->frames, many * sizeof *frames);
    return many;
}

size_t script_starts(const struct tracee *thread, struct script_frame *frames)
{
    const struct report *own = thread->reported ? &thread->reported[letter_place('e')] : NULL;
    if (own)
        memcpy(frames, own->frames, own->depth * sizeof *frames);
    return own ? own->depth : 0;
}

bool scripts_report(const struct process *process)
{
    return process->scripts != NULL;
}

void script_forget(struct tracee *thread)
{
    free(thread->reported);
    free(thread->latest);
    thread->reported = thread->latest = thread->whole = thread->asked = NULL;
}

void scripts_end(struct process *process)
{
    struct scripts *scripts = process->scripts;
    while (scripts && scripts->expected) {
        struct report *next = scripts->expected->next;
        free(scripts->expected);
        scripts->expected = next;
    }
    if (scripts)
        free(scripts->opened);
    free(scripts);
    process->scripts = NULL;
}

const struct handler script_report = {report_enter, NULL, true};
