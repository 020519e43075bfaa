#include "scenes.h"

void *cc_wrap_memcpy(void *, const void *, size_t);
void *cc_wrap_memset(void *, int, size_t);
char *cc_wrap_strcpy(char *, const char *);
int cc_wrap_snprintf(char *, size_t, const char *, ...);

static void at_site(uint32_t index)
{
    cc_call_site = (struct cc_call_site){&hand_unit, index, 0};
}

static void strings(const char *pool, char **arguments)
{
    (void)arguments;
    char *at = map_file(open_file(pool, "a.db", 4096), 4096);
    char *(*volatile copy)(char *, const char *) = strcpy;
    char *(*volatile end)(char *, const char *) = stpcpy;
    char *(*volatile bounded)(char *, const char *, size_t) = strncpy;
    char *(*volatile add)(char *, const char *) = strcat;
    char *(*volatile add_some)(char *, const char *, size_t) = strncat;
    int (*volatile print)(char *, size_t, const char *, ...) = snprintf;
    int (*volatile print_all)(char *, const char *, ...) = sprintf;
    NEED(copy(at, "abc") == at);
    NEED(end(at + 3, "de") == at + 5);
    NEED(bounded(at + 10, "x", 4) == at + 10);
    NEED(add(at, "fg") == at);
    NEED(add_some(at, "hijk", 2) == at);
    NEED(print(at + 100, 6, "%d", 1234567) == 7);
    NEED(print_all(at + 200, "%s!", "printed") == 8);
    NEED(print(NULL, 0, "%d", 1) == 1);
    NEED(strcmp(at, "abcdefghi") == 0);
}

static void sited(const char *pool, char **arguments)
{
    (void)arguments;
    char *at = map_file(open_file(pool, "a.db", 4096), 4096);
    char here[16];
    at_site(5);
    cc_wrap_memcpy(at, "12345678", 8);
    at_site(6);
    cc_wrap_memset(at + 64, 'z', 3);
    at_site(7);
    cc_wrap_strcpy(here, "not there");
    at_site(8);
    NEED(cc_wrap_snprintf(at + 128, 20, "%s-%d", "n", 42) == 4);
    cc_wrap_memcpy(at + 256, "x", 1);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"strings", strings}, {"sited", sited}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
