/* Starts a memcached and checks every answer: `memcached_client SERVER THREADS CONNECTIONS OPERATIONS SEED`.
 * Prints the seconds from the first operation to the last answer; exits with 1 if an answer is wrong, or the server fails.
 *
 * Each connection sets, gets and deletes keys of its own, of which it knows what they hold; all of them increment counters
 * that they share, and set and get keys that they share, whose values are whole or the answer is wrong. At the end the
 * counters hold all increments. Now and then one stores what has expired already and asks for the crawler that removes it,
 * which by itself first meets items after a minute. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OWN = 200, SHARED = 20, COUNTERS = 4, CRAWL_EVERY = 2000, MOST_CONNECTIONS = 64, LONGEST = 700, CONNECT_TRIES = 2000 };
static const char SOCKET[] = "memcached.sock";

struct client {
    FILE *to, *from;
    unsigned number, random;
    unsigned version[OWN]; /* 0: not there */
    unsigned long added[COUNTERS];
};
static struct client clients[MOST_CONNECTIONS];
static long operations;

static void fail(const char *what, const char *got) {
    fprintf(stderr, "memcached_client: %s: %s\n", what, got);
    exit(1);
}

static int connected(struct client *client) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, SOCKET);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return 0;
    }
    client->to = fdopen(fd, "w");
    client->from = fdopen(dup(fd), "r");
    return client->to && client->from;
}

static unsigned next(struct client *client, unsigned below) {
    client->random = client->random * 1103515245u + 12345u;
    return (client->random >> 16) % below;
}

static char *line_of(struct client *client, char *line) {
    fflush(client->to);
    if (!fgets(line, LONGEST + 100, client->from))
        fail("answer", "none");
    line[strcspn(line, "\r\n")] = 0;
    return line;
}

static void expect(struct client *client, const char *expected) {
    char line[LONGEST + 100];
    if (strcmp(line_of(client, line), expected) != 0)
        fail(expected, line);
}

/* A letter again and again, as often as the version wants: a value of two writers is not such a text. */
static unsigned value(char *text, unsigned version) {
    unsigned size = 1 + version * 37 % (LONGEST - 1);
    memset(text, 'a' + version % 26, size);
    text[size] = 0;
    return size;
}

static void set(struct client *client, const char *key, unsigned version) {
    char text[LONGEST + 1];
    unsigned size = value(text, version);
    fprintf(client->to, "set %s %u 0 %u\r\n%s\r\n", key, version, size, text);
    expect(client, "STORED");
}

/* The version that a key has; 0 if it is not there. */
static unsigned get(struct client *client, const char *key) {
    char line[LONGEST + 100], expected[LONGEST + 1], name[64];
    unsigned version = 0, size = 0;
    fprintf(client->to, "get %s\r\n", key);
    if (strcmp(line_of(client, line), "END") == 0)
        return 0;
    if (sscanf(line, "VALUE %63s %u %u", name, &version, &size) != 3 || strcmp(name, key) != 0)
        fail(key, line);
    if (value(expected, version) != size)
        fail("size", line);
    expect(client, expected);
    expect(client, "END");
    return version;
}

static void crawl(struct client *client) {
    char line[LONGEST + 100];
    fprintf(client->to, "set expired-%u 0 -1 1\r\n0\r\n", next(client, OWN));
    expect(client, "STORED");
    fprintf(client->to, "lru_crawler crawl all\r\n");
    if (strcmp(line_of(client, line), "OK") != 0 && strncmp(line, "BUSY ", 5) != 0)
        fail("crawl", line);
}

static void operate(struct client *client) {
    char key[64], line[LONGEST + 100];
    if (next(client, CRAWL_EVERY) == 0)
        crawl(client);
    unsigned own = next(client, OWN), choice = next(client, 100);
    snprintf(key, sizeof key, "own-%u-%u", client->number, own);
    if (choice < 35) {
        if (get(client, key) != client->version[own])
            fail("a key of its own", key);
    } else if (choice < 55) {
        set(client, key, client->version[own] = 1 + next(client, 10000));
    } else if (choice < 60) {
        fprintf(client->to, "delete %s\r\n", key);
        expect(client, client->version[own] ? "DELETED" : "NOT_FOUND");
        client->version[own] = 0;
    } else if (choice < 80) {
        unsigned counter = next(client, COUNTERS), by = 1 + next(client, 9);
        fprintf(client->to, "incr counter-%u %u\r\n", counter, by);
        if (strspn(line_of(client, line), "0123456789") != strlen(line))
            fail("incr", line);
        client->added[counter] += by;
    } else {
        snprintf(key, sizeof key, "shared-%u", next(client, SHARED));
        if (choice < 90)
            set(client, key, 1 + next(client, 10000));
        else
            get(client, key);
    }
}

static void *work(void *own) {
    for (long i = 0; i < operations; i++)
        operate(own);
    return NULL;
}

static pid_t start(char *server, char *threads) {
    unlink(SOCKET);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(2, 1);
        execl(server, server, "-s", SOCKET, "-t", threads, "-u", "root", "-m", "64", (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void begin(unsigned connections, unsigned seed) {
    char key[64];
    for (unsigned i = 0; i < connections; i++) {
        clients[i].number = i;
        clients[i].random = seed * 7919u + i;
        for (int tries = 0; !connected(&clients[i]); tries++) {
            if (tries == CONNECT_TRIES)
                fail("server", "cannot be reached");
            nanosleep(&(struct timespec){0, 5000000}, NULL);
        }
    }
    for (unsigned i = 0; i < COUNTERS; i++) {
        snprintf(key, sizeof key, "counter-%u", i);
        fprintf(clients[0].to, "set %s 0 0 1\r\n0\r\n", key);
        expect(&clients[0], "STORED");
    }
}

static void check_counters(unsigned connections) {
    char line[LONGEST + 100];
    for (unsigned counter = 0; counter < COUNTERS; counter++) {
        unsigned long sum = 0;
        for (unsigned i = 0; i < connections; i++)
            sum += clients[i].added[counter];
        fprintf(clients[0].to, "incr counter-%u 0\r\n", counter);
        if (strtoul(line_of(&clients[0], line), NULL, 10) != sum)
            fail("a counter lost increments", line);
    }
}

int main(int argc, char **argv) {
    unsigned connections = argc == 6 ? (unsigned)atoi(argv[3]) : 0;
    if (connections < 1 || connections > MOST_CONNECTIONS)
        fail("usage", "memcached_client SERVER THREADS CONNECTIONS OPERATIONS SEED");
    operations = atol(argv[4]);
    signal(SIGPIPE, SIG_IGN);
    pid_t pid = start(argv[1], argv[2]);
    begin(connections, (unsigned)atoi(argv[5]));
    struct timespec first, last;
    pthread_t threads[MOST_CONNECTIONS];
    clock_gettime(CLOCK_MONOTONIC, &first);
    for (unsigned i = 0; i < connections; i++)
        if (pthread_create(&threads[i], NULL, work, &clients[i]) != 0)
            fail("thread", "none");
    for (unsigned i = 0; i < connections; i++)
        pthread_join(threads[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &last);
    check_counters(connections);
    int status = -1;
    kill(pid, SIGINT);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("server", "ended otherwise than asked");
    printf("%.6f\n", (double)(last.tv_sec - first.tv_sec) + (double)(last.tv_nsec - first.tv_nsec) / 1e9);
    return 0;
}
