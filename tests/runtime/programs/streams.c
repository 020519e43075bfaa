#include "scenes.h"

/* Standard output by every road. */
static void prints(const char *pool, char **arguments)
{
    (void)arguments;
    char *at = map_file(open_file(pool, "a.db", 4096), 4096);
    setvbuf(stdout, NULL, _IOLBF, 0);
    STORE(1, at, 'a');
    puts("one");
    STORE(1, at, 'b');
    printf("%s\n", "two");
    STORE(1, at, 'c');
    NEED(write(1, "three\n", 6) == 6);
    STORE(1, at, 'd');
    fputs("four", stdout);
    STORE(1, at, 'e');
    fflush(stdout);
    STORE(1, at, 'f');
    putchar('5');
    crashcheck_op_begin();
    crashcheck_op_end();
    NEED(write(2, "not standard output", 19) == 19);
    STORE(1, at, 'g');
}

static void files(const char *pool, char **arguments)
{
    (void)arguments;
    FILE *stream = fopen(in_pool(pool, "a.db"), "w");
    NEED(stream);
    fprintf(stream, "%s %d\n", "hello", 5);
    fputc('!', stream);
    NEED(fflush(stream) == 0);
    NEED(fsync(fileno(stream)) == 0);
    NEED(fwrite("0123456789", 1, 10, stream) == 10);
    NEED(fseek(stream, 2, SEEK_SET) == 0);
    fputs("LL", stream);
    NEED(fclose(stream) == 0);
    stream = fopen(in_pool(pool, "a.db"), "r+");
    char line[8];
    NEED(fgets(line, sizeof line, stream));
    NEED(fseek(stream, 1, SEEK_SET) == 0);
    fputs("E", stream);
    NEED(fclose(stream) == 0);
    stream = fopen(in_pool(pool, "a.db"), "a");
    fputs("end", stream);
    char big[10000];
    memset(big, 'b', sizeof big);
    NEED(fwrite(big, 1, sizeof big, stream) == sizeof big);
    dprintf(fileno(stream), "direct");
    stream = fopen(in_pool(pool, "b.db"), "w");
    fputs("left to exit", stream);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"prints", prints}, {"files", files}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
