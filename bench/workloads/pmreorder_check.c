/* The check that pmreorder runs: `pmreorder_check DRIVER FOLDER POOL`. After a crash the driver must continue as if the operation
 * under way had been done, or as if it had not: the oracle of crashcheck's runs that it is compared with.
 *
 * How many operations have ended is the number of END markers. For each number n FOLDER has n.rest, the operations after the one
 * under way, and what they must print: n.done or n.undone. A letter for each check is added to FOLDER/checked; the image of
 * check number m is kept as m-n.failed if it fails. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST (1 << 20)

static size_t content(const char *path, char *into) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    size_t size = fread(into, 1, MOST, file);
    fclose(file);
    return size;
}

static int equal(const char *path, const char *other) {
    static char left[MOST], right[MOST];
    size_t size = content(path, left);
    return size == content(other, right) && memcmp(left, right, size) == 0;
}

static void copy(const char *from, const char *to) {
    static char bytes[MOST];
    size_t size = content(from, bytes);
    FILE *file = fopen(to, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) {
        perror(to);
        exit(2);
    }
}

static int run(char *driver, char *pool, char *operations, const char *output) {
    pid_t child = fork();
    if (!child) {
        int out = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0644), none = open("/dev/null", O_WRONLY);
        alarm(5);
        dup2(out, 1);
        dup2(none, 2);
        execv(driver, (char *[]){driver, pool, operations, NULL});
        _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

int main(int count, char **words) {
    const char *markers = getenv("PMREORDER_MARKERS");
    if (count != 4)
        return 2;
    int ended = 0;
    for (const char *at = markers ? strstr(markers, ".END") : NULL; at; at = strstr(at + 1, ".END"))
        ended++;
    char pool[4096], rest[4096], done[4096], undone[4096], output[4096], checked[4096];
    snprintf(pool, sizeof pool, "%s/image", words[2]);
    snprintf(rest, sizeof rest, "%s/%d.rest", words[2], ended);
    snprintf(done, sizeof done, "%s/%d.done", words[2], ended);
    snprintf(undone, sizeof undone, "%s/%d.undone", words[2], ended);
    snprintf(output, sizeof output, "%s/output", words[2]);
    snprintf(checked, sizeof checked, "%s/checked", words[2]);
    copy(words[3], pool);
    int consistent = !run(words[1], pool, rest, output) && (equal(output, done) || equal(output, undone));
    int letters = open(checked, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (!consistent) { /* the driver has changed its own copy */
        snprintf(output, sizeof output, "%s/%ld-%d.failed", words[2], (long)lseek(letters, 0, SEEK_END), ended);
        copy(words[3], output);
    }
    if (letters < 0 || write(letters, consistent ? "." : "x", 1) != 1)
        return 2;
    return !consistent;
}
