/* Patterns of paths, as in [pool] files: the same in both recorders and in runtime/patterns.py. */
#ifndef CRASHCHECK_GLOB_H
#define CRASHCHECK_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One character of UTF-8; a byte that is none is a character of its own, as in Python's file names. */
static uint32_t next_char(const char **text, const char *end)
{
    const unsigned char *at = (const unsigned char *)*text;
    uint32_t more = at[0] >= 0xf0 ? 3 : at[0] >= 0xe0 ? 2 : at[0] >= 0xc2 ? 1 : 0;
    uint32_t value = more == 3 ? at[0] & 7u : more == 2 ? at[0] & 15u : more == 1 ? at[0] & 31u : at[0];
    for (uint32_t i = 1; i <= more; i++) {
        if ((end && (const char *)at + i >= end) || (at[i] & 0xc0) != 0x80) {
            *text += 1;
            return 0xdc00u + at[0];
        }
        value = value << 6 | (at[i] & 63u);
    }
    *text += more + 1;
    return value < 0x80 || more ? value : 0xdc00u + value;
}

/* Reads the set after `[` up to its `]`: whether `c` is in it. NULL if the bracket never closes. */
static const char *in_set(const char *pattern, const char *end, uint32_t c, bool *inside)
{
    bool negated = pattern < end && *pattern == '!', found = false;
    if (negated)
        pattern++;
    for (bool first = true; pattern < end && (first || *pattern != ']'); first = false) {
        uint32_t low = next_char(&pattern, end), high = low;
        if (pattern + 1 < end && *pattern == '-' && pattern[1] != ']') {
            pattern++;
            high = next_char(&pattern, end);
        }
        found |= c >= low && c <= high;
    }
    *inside = found != negated;
    return pattern < end ? pattern + 1 : NULL;
}

/* Whether the pattern's first character, any other than `*`, matches `text`; then both move on. */
static bool match_one(const char **pattern, const char *end, const char **text)
{
    bool set = **pattern == '[', any = **pattern == '?', inside = false;
    uint32_t wanted = next_char(pattern, end), c = next_char(text, NULL);
    const char *after = set ? in_set(*pattern, end, c, &inside) : NULL;
    if (after) {
        *pattern = after;
        return inside && c != '/';
    }
    return any ? c != '/' : c == wanted;
}

static bool glob(const char *pattern, const char *end, const char *text);

/* The same for a pattern that begins with `*`: `*` matches the rest of `text`, or less. */
static bool glob_star(const char *pattern, const char *end, const char *text)
{
    bool deep = ++pattern < end && *pattern == '*';
    if (deep) {
        pattern++;
        if (pattern < end && *pattern == '/' && glob(pattern + 1, end, text))
            return true;
    }
    for (;; text++) {
        if (glob(pattern, end, text))
            return true;
        if (!*text || (!deep && *text == '/'))
            return false;
    }
}

/* `*` and `?` stay within a folder, `**` crosses folders, `[a-z]` and `[!a-z]` are sets: as runtime/patterns.py. */
static bool glob(const char *pattern, const char *end, const char *text)
{
    while (pattern < end) {
        if (*pattern == '*')
            return glob_star(pattern, end, text);
        if (!*text || !match_one(&pattern, end, &text))
            return false;
    }
    return !*text;
}

#endif
