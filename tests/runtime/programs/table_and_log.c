/* Keeps a table that it maps, and a log that it writes: what is stored must be durable before the call that relies on it.
 * With "late" the sync is missing. Steps print what they did, so that their end is an acknowledgement. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 8192

static char *table;
static int is_late;

static void need(int succeeded)
{
    if (!succeeded)
        _exit(9);
}

static void map_table(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    need(fd >= 0 && ftruncate(fd, SIZE) == 0);
    table = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need(table != MAP_FAILED);
}

static void put(int slot, const char *text)
{
    memcpy(table + 4096 * slot, text, strlen(text));
}

static void sync_table(void)
{
    if (!is_late)
        need(msync(table, SIZE, MS_SYNC) == 0);
}

static void sync_folder(void)
{
    int fd = open(".", O_RDONLY);
    need(is_late || (fd >= 0 && fsync(fd) == 0));
}

static void log_record(const char *text)
{
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    need(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fsync(fd) == 0);
    close(fd);
}

/* A new table takes the old one's name. */
static void publish(void)
{
    map_table("table.new");
    put(0, "record");
    sync_table();
    need(rename("table.new", "table") == 0);
}

/* The log is not needed any more once the table has what it holds. */
static void checkpoint(void)
{
    map_table("table");
    need(msync(table, SIZE, MS_SYNC) == 0);
    log_record("record");
    puts("logged");
    fflush(stdout);
    put(1, "record");
    sync_table();
    need(unlink("log") == 0);
}

/* A table is there, with its content, once that was printed. */
static void create(void)
{
    map_table("table.new");
    put(0, "record");
    need(msync(table, SIZE, MS_SYNC) == 0);
    need(rename("table.new", "table") == 0);
    sync_folder();
    puts("created");
    fflush(stdout);
}

static void *put_by_thread(void *unused)
{
    (void)unused;
    put(1, "thread");
    return NULL;
}

/* Stores of several threads and processes, and of code without hooks. */
void put_elsewhere(char *at);
void put_elsewhere(char *at) __attribute__((weak));

static void share(void)
{
    pthread_t thread;
    map_table("table");
    put(0, "parent");
    need(pthread_create(&thread, NULL, put_by_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        memcpy(table + 64, "child", 5);
        _exit(0);
    }
    need(waitpid(child, NULL, 0) == child);
    if (put_elsewhere)
        put_elsewhere(table + 128);
    need(mkdir("folder", 0755) == 0);
    need(rename("table", "folder/table") == 0);
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } steps[] = {{"publish", publish}, {"checkpoint", checkpoint}, {"create", create}, {"share", share}};
    need(count > 2 && chdir(words[1]) == 0);
    is_late = count > 3 && !strcmp(words[3], "late");
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!strcmp(words[2], steps[i].name))
            steps[i].run();
    return 0;
}
