/* Runs a command and records what its system calls do to the files of a folder:
 *
 *   record [--in-place FD] [--fault CALL ERROR NTH TIMES PATTERN]... [--io-uring] [--javascript FILE] TRACE FOLDER COMMAND [ARGUMENT...]
 *
 * Exit status: the command's; 125 if it cannot be recorded. What a user should know is written to TRACE.notes.
 *
 * With --javascript Node loads a module of ours, which shows who makes calls (javascript.c).
 * With --in-place the command is as it would be without us: it stays in our process group and has the terminal, and
 * what it leaves running continues. FD gets the command's process number and, when the trace is complete, its status. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "syscalls/recorder.h"

static int in_place = -1; /* where its end is reported, or -1 */

static void report(int number)
{
    if (write(in_place, &number, sizeof number) != sizeof number)
        return; /* nobody waits for it any more */
}

/* Signals of the terminal are for the command, and whoever ends our caller does not end the command. */
static void ignore_signals(void)
{
    static const int ignored[] = {SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGHUP, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
}

static void become(char **command, int ready)
{
    char byte;
    if (read(ready, &byte, 1) != 1)
        _exit(125);
    close(ready);
    if (!filter_install()) {
        trace_note("seccomp", strerror(errno));
        follow_every_call();
    }
    execvp(command[0], command);
    fprintf(stderr, "crashcheck: cannot run %s: %s\n", command[0], strerror(errno));
    _exit(127);
}

int main(int count, char **words)
{
    char notes[PATH_ROOM];
    int ready[2];
    bool usable = true;
    if (count > 2 && strcmp(words[1], "--in-place") == 0) {
        in_place = atoi(words[2]);
        if (fcntl(in_place, F_SETFD, FD_CLOEXEC) != 0)
            die("--in-place");
        count -= 2, words += 2;
    }
    for (; count > FAULT_WORDS + 1 && strcmp(words[1], "--fault") == 0; count -= FAULT_WORDS + 1, words += FAULT_WORDS + 1)
        usable = usable && fault_add(words + 2);
    if (count > 1 && strcmp(words[1], "--io-uring") == 0) {
        unseen_allow_uring();
        count--;
        words++;
    }
    if (count > 2 && strcmp(words[1], "--javascript") == 0) {
        preload_use(words[2]);
        count -= 2, words += 2;
    }
    if (count < 4 || !usable) {
        fprintf(stderr, "usage: record [--in-place FD] [--fault CALL ERROR NTH TIMES PATTERN]... [--io-uring] [--javascript FILE] TRACE FOLDER COMMAND [ARGUMENT...]\n");
        return 125;
    }
    follow_start(in_place >= 0 ? getppid() : 0);
    snprintf(notes, sizeof notes, "%s.notes", words[1]);
    trace_note_path(notes);
    int folder = open(words[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        die(words[2]);
    trace_open(words[1]);
    inodes_scan(folder);
    outputs_start();
    if (pipe2(ready, O_CLOEXEC) != 0)
        die("pipe");
    pid_t command = fork();
    if (command < 0)
        die("fork");
    if (command == 0) {
        close(ready[1]);
        if (in_place < 0)
            setpgid(0, 0);
        become(words + 3, ready[0]);
    }
    if (in_place >= 0)
        ignore_signals();
    trace_header()->main_pid = (uint32_t)command;
    if (!follow_seize(command)) {
        trace_note("ptrace", strerror(errno));
        fprintf(stderr, "crashcheck: ptrace is not permitted: %s\n", strerror(errno));
        kill(command, SIGKILL);
        return 125;
    }
    if (write(ready[1], "", 1) != 1)
        die("pipe");
    close(ready[0]);
    close(ready[1]);
    if (in_place >= 0)
        report(command);
    int status = follow(command);
    faults_end();
    if (in_place >= 0)
        follow_note_left();
    trace_close();
    if (in_place >= 0) {
        report(status);
        close(in_place);
        follow_let_run();
        return 0;
    }
    if (WIFSIGNALED(status)) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
