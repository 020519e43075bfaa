/* Lets Node load a module of ours before the program (javascript.c), Python another one (agents/sitecustomize.py), and Java an
 * agent (java.c). A program that has just been executed finds --require in its NODE_OPTIONS, behind what the user has there, or
 * a folder in its PYTHONPATH, in front of that; the module takes it out again. Java finds -agentpath as its first argument. Only
 * programs called node, python3.N or java have it so, and their children have it from here again: nothing that the user's commands
 * print of their environment is another. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define NODE_VARIABLE "NODE_OPTIONS="
#define PYTHON_VARIABLE "PYTHONPATH="
#define AGENT "-agentpath:"
#define MOST_WORDS (1u << 20)   /* of arguments and environment */
#define LONGEST_VALUE 4096u
#define CODE_64 0x33            /* the segment of 64-bit code */

static char option[2 * PATH_ROOM]; /* --require="FILE", empty: nothing is loaded */
static char agent[PATH_ROOM];      /* -agentpath:FILE, likewise */
static char folder[PATH_ROOM];     /* of Python's module, likewise */

void preload_module(const char *file)
{
    char *to = option + sprintf(option, "--require=\"");
    if (access(file, R_OK) != 0 || strlen(file) > PATH_MAX) {
        option[0] = '\0';
        return;
    }
    for (; *file; file++) {
        if (*file == '"' || *file == '\\')
            *to++ = '\\';
        *to++ = *file;
    }
    strcpy(to, "\"");
}

void preload_folder(const char *path)
{
    if (access(path, R_OK) == 0 && strlen(path) < PATH_MAX && !strchr(path, ':')) /* which divides folders */
        snprintf(folder, sizeof folder, "%s", path);
}

void preload_agent(const char *file)
{
    if (access(file, R_OK) == 0 && strlen(file) < PATH_MAX - sizeof AGENT && !strchr(file, '=')) /* behind = are its options */
        snprintf(agent, sizeof agent, AGENT "%s", file);
}

/* node, nodejs, node20, node-20.1 */
static bool is_node(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (strncmp(name, "node", 4) != 0)
        return false;
    name += strncmp(name, "nodejs", 6) == 0 ? 6 : 4;
    return name[strspn(name, "-.0123456789")] == '\0';
}

static bool is_java(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && strcmp(name + 1, "java") == 0;
}

/* Whether the program may read what we can. */
static bool is_ours(const struct tracee *thread)
{
    char path[32];
    struct stat state;
    snprintf(path, sizeof path, "/proc/%d", thread->tid);
    return !thread->process->elsewhere && stat(path, &state) == 0 && state.st_uid == geteuid();
}

/* Arguments, environment and auxiliary vector from an address of the stack on, up to AT_NULL; their number of words, 0: not known.
 * `place`: where `variable` ("NAME=") is in them or, if it is `missing`, has to be. */
static size_t read_words(struct tracee *thread, uint64_t from, const char *variable, uint64_t *words, size_t *place, bool *missing)
{
    size_t known = memory_read(thread, from, words, MOST_WORDS * sizeof *words) / sizeof *words;
    if (!known || words[0] > known)
        return 0;
    size_t at = words[0] + 2;
    char start[sizeof NODE_VARIABLE];
    size_t length = strlen(variable);
    for (*missing = true; at < known && words[at]; at++) {
        if (*missing && memory_read(thread, words[at], start, length) == length && memcmp(start, variable, length) == 0) {
            *missing = false;
            *place = at;
        }
    }
    if (*missing)
        *place = at;
    for (at++; at + 1 < known; at += 2)
        if (!words[at])
            return at + 2;
    return 0;
}

static bool write_memory(struct tracee *thread, uint64_t address, const void *bytes, size_t size)
{
    struct iovec ours = {(void *)(uintptr_t)bytes, size}, theirs = {(void *)(uintptr_t)address, size};
    return process_vm_writev(thread->tid, &ours, 1, &theirs, 1, 0) == (ssize_t)size;
}

/* Gives the thread another stack: `count` words, and below where they ended a text, whose address one of them becomes. */
static void replace_words(struct tracee *thread, struct user_regs_struct *now, uint64_t end, uint64_t *words, size_t count,
                          size_t place, const char *text)
{
    size_t room = (strlen(text) + 16) & ~(size_t)15;
    uint64_t start = (end - room - count * sizeof *words) & ~(uint64_t)15;
    words[place] = end - room;
    if (write_memory(thread, start, words, count * sizeof *words) && write_memory(thread, end - room, text, strlen(text) + 1)) {
        now->rsp = start;
        ptrace(PTRACE_SETREGS, thread->tid, NULL, now);
    }
}

/* Sets a variable of the environment. Where the user has it, it becomes that and `value`, in the order of `user_first`. */
static void set_variable(struct tracee *thread, struct user_regs_struct *now, uint64_t *words, const char *variable,
                         const char *value, bool user_first)
{
    static char text[LONGEST_VALUE + sizeof option + sizeof NODE_VARIABLE];
    char theirs[LONGEST_VALUE] = "";
    const char *between = ""; /* ' ' also behind nothing: javascript.js sees from it that the user has the variable */
    size_t place;
    bool missing;
    size_t count = read_words(thread, now->rsp, variable, words, &place, &missing);
    uint64_t end = now->rsp + count * sizeof *words;
    if (!count)
        return;
    if (missing) {
        memmove(words + place + 1, words + place, (count++ - place) * sizeof *words);
    } else {
        between = user_first ? " " : ":";
        if (memory_read(thread, words[place] + strlen(variable), theirs, sizeof theirs) == 0 || !memchr(theirs, '\0', sizeof theirs) ||
            (!user_first && !theirs[0])) /* ':' before nothing would be one more folder */
            return;
    }
    snprintf(text, sizeof text, "%s%s%s%s", variable, user_first ? theirs : value, between, user_first ? value : theirs);
    replace_words(thread, now, end, words, count, place, text);
}

/* Behind the program's name. Java may execute itself once more, with the arguments that it has. */
static void load_agent(struct tracee *thread, struct user_regs_struct *now, uint64_t *words)
{
    enum { ARGUMENTS = 1 };
    static char text[PATH_ROOM];
    size_t place;
    bool missing;
    size_t count = read_words(thread, now->rsp, NODE_VARIABLE, words, &place, &missing), length;
    uint64_t end = now->rsp + count * sizeof *words;
    if (!count || !words[0])
        return;
    java_runs(thread->process, "");
    for (size_t i = ARGUMENTS + words[0]; i-- > ARGUMENTS + 1;) { /* the first one is left in it */
        if (!memory_path(thread, words[i], text))
            continue;
        length = strlen(text);
        if (length > 5 && strcmp(text + length - 5, ".java") == 0)
            java_runs(thread->process, text);
        if (strcmp(text, agent) == 0)
            return;
    }
    memmove(words + ARGUMENTS + 2, words + ARGUMENTS + 1, (count - ARGUMENTS - 1) * sizeof *words);
    words[0]++;
    replace_words(thread, now, end, words, count + 1, ARGUMENTS + 1, agent);
}

void preload_begin(struct tracee *thread, const char *path)
{
    struct user_regs_struct now;
    bool node = option[0] && is_node(path), java = agent[0] && is_java(path), python = folder[0] && python_preloads(thread, path);
    if ((!node && !java && !python) || !is_ours(thread) || ptrace(PTRACE_GETREGS, thread->tid, NULL, &now) != 0 || now.cs != CODE_64)
        return;
    uint64_t *words = malloc((MOST_WORDS + 1) * sizeof *words);
    if (words && node)
        set_variable(thread, &now, words, NODE_VARIABLE, option, true);
    else if (words && python)
        set_variable(thread, &now, words, PYTHON_VARIABLE, folder, false);
    else if (words)
        load_agent(thread, &now, words);
    free(words);
}
