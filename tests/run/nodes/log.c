/* A log on three nodes: the first appends what a client sends, and the others append what it sends them. It answers the client
 * once one of them has stored the entry as well: a majority has it.
 *
 *   log INDEX PEERS early|sync
 *   log check STATE
 *
 * "early": nodes answer before the entry is durable. The last node is the client. The check: what was answered is in the logs of
 * a majority. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT 7000
#define NODES 4
#define LEADER 0
#define CLIENT 3

static struct sockaddr_in peers[NODES];
static int server;

static void send_to(int node, const char *text)
{
    sendto(server, text, strlen(text), 0, (struct sockaddr *)&peers[node], sizeof peers[node]);
}

__attribute__((noinline)) static void append(const char *entry, int sync)
{
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (log < 0 || write(log, entry, strlen(entry)) < 0 || (sync && fsync(log) != 0))
        exit(3);
    close(log);
}

static int has_text(const char *state, const char *name, const char *text)
{
    char path[4096], found[64] = {0};
    snprintf(path, sizeof path, "%s/%s", state, name);
    int file = open(path, O_RDONLY);
    return file >= 0 && read(file, found, sizeof found - 1) > 0 && strcmp(found, text) == 0;
}

static int check(const char *state)
{
    int logs = has_text(state, "n0/log", "entry\n") + has_text(state, "n1/log", "entry\n") + has_text(state, "n2/log", "entry\n");
    return has_text(state, "n3.output", "answered\n") && logs < 2;
}

int main(int count, char **words)
{
    if (count == 3)
        return check(words[2]);
    if (count != 4)
        return 2;
    int self = atoi(words[1]), sync = strcmp(words[3], "sync") == 0, answered = 0;
    char text[32], *rest = words[2];
    server = socket(AF_INET, SOCK_DGRAM, 0);
    for (int node = 0; node < NODES; node++) {
        peers[node] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
        inet_aton(strsep(&rest, ","), &peers[node].sin_addr);
    }
    if (bind(server, (struct sockaddr *)&peers[self], sizeof peers[self]) != 0)
        return 2;
    if (self == CLIENT)
        send_to(LEADER, "put");
    for (ssize_t size; (size = recv(server, text, sizeof text - 1, 0)) > 0;) {
        text[size] = 0;
        if (strcmp(text, "answer") == 0) {
            return puts("answered") < 0;
        }
        if (strcmp(text, "stored") == 0) {
            if (!answered++)
                send_to(CLIENT, "answer");
            continue;
        }
        append("entry\n", sync);
        if (self != LEADER) {
            send_to(LEADER, "stored");
            continue;
        }
        for (int node = LEADER + 1; node < CLIENT; node++)
            send_to(node, "append");
    }
    return 2;
}
