/* Runs a command and records what its system calls do to the files of a folder:
 *
 *   record [--in-place FD STDOUT] [--fault CALL ERROR NTH TIMES PATTERN]... [--io-uring] [--javascript FILE] [--java FILE] [--python FOLDER] TRACE FOLDER COMMAND [ARGUMENT...]
 *   record --attach FD PID TRACE FOLDER
 *
 * Exit status: the command's; 125 if it cannot be recorded. What a user should know is written to TRACE.notes.
 *
 * With --javascript Node loads a module of ours, which shows who makes calls (javascript.c); with --java Java an agent (java.c),
 * with --python Python the module in a folder.
 * With --in-place the command is as it would be without us: it stays in our process group and has the terminal, and
 * what it leaves running continues. FD gets the command's process number and, when the trace is complete, its status,
 * and the file STDOUT a copy of what it prints.
 *
 * With --attach a process records what it does itself from now on. It waits at the other end of the socket FD: it sends
 * a byte, gets the seccomp filter and installs it. Then it closes its end, or, where no filter is permitted, sends the
 * reason and waits for the end of the connection. */
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

/* Starts to trace a process that waits at the other end of a socket; whether that is permitted. */
static bool attach(pid_t process, int socket)
{
    char reason[256];
    if (read(socket, reason, 1) != 1 || !follow_seize(process) || !filter_send(socket))
        return false;
    ssize_t size = read(socket, reason, sizeof reason - 1);
    if (size > 0) {
        reason[size] = '\0';
        trace_note("seccomp", reason);
        follow_every_call();
        follow_interrupt(process); /* it continues from call to call */
    }
    close(socket);
    return true;
}

/* Forks the command, which waits for a byte from `ready` before it begins. */
static pid_t start(char **command, int *ready)
{
    if (pipe2(ready, O_CLOEXEC) != 0)
        die("pipe");
    pid_t process = fork();
    if (process < 0)
        die("fork");
    if (process == 0) {
        close(ready[1]);
        if (in_place < 0)
            setpgid(0, 0);
        become(command, ready[0]);
    }
    return process;
}

static void let_begin(const int *ready)
{
    if (write(ready[1], "", 1) != 1)
        die("pipe");
    close(ready[0]);
    close(ready[1]);
}

/* Ends by the signal that ended the command, if one did. */
static void end_as(int status)
{
    if (WIFSIGNALED(status)) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
}

static void open_all(const char *trace, const char *watched)
{
    static char notes[PATH_ROOM]; /* notes are written until the end */
    follow_start(in_place >= 0 ? getppid() : 0);
    snprintf(notes, sizeof notes, "%s.notes", trace);
    trace_note_path(notes);
    int folder = open(watched, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        die(watched);
    trace_open(trace);
    inodes_scan(folder);
    outputs_start();
}

int main(int count, char **words)
{
    int ready[2], socket = -1;
    pid_t command = 0;
    bool usable = true;
    if (count > 3 && strcmp(words[1], "--attach") == 0) {
        socket = atoi(words[2]);
        command = (pid_t)atoi(words[3]);
        count -= 3, words += 3;
    }
    if (count > 3 && strcmp(words[1], "--in-place") == 0) {
        in_place = atoi(words[2]);
        if (fcntl(in_place, F_SETFD, FD_CLOEXEC) != 0)
            die("--in-place");
        outputs_copy(words[3]);
        count -= 3, words += 3;
    }
    for (; count > FAULT_WORDS + 1 && strcmp(words[1], "--fault") == 0; count -= FAULT_WORDS + 1, words += FAULT_WORDS + 1)
        usable = usable && fault_add(words + 2);
    if (count > 1 && strcmp(words[1], "--io-uring") == 0) {
        unseen_allow_uring();
        count--;
        words++;
    }
    if (count > 2 && strcmp(words[1], "--javascript") == 0) {
        preload_module(words[2]);
        count -= 2, words += 2;
    }
    if (count > 2 && strcmp(words[1], "--java") == 0) {
        preload_agent(words[2]);
        count -= 2, words += 2;
    }
    if (count > 2 && strcmp(words[1], "--python") == 0) {
        preload_folder(words[2]);
        count -= 2, words += 2;
    }
    if (!usable || (socket < 0 ? count < 4 : count != 3)) {
        fprintf(stderr, "usage: record [--in-place FD STDOUT] [--fault CALL ERROR NTH TIMES PATTERN]... [--io-uring] [--javascript FILE] [--java FILE] [--python FOLDER] TRACE FOLDER COMMAND [ARGUMENT...]\n"
                        "       record --attach FD PID TRACE FOLDER\n");
        return 125;
    }
    open_all(words[1], words[2]);
    if (socket < 0)
        command = start(words + 3, ready);
    if (in_place >= 0)
        ignore_signals();
    trace_header()->main_pid = (uint32_t)command;
    if (!(socket < 0 ? follow_seize(command) : attach(command, socket))) {
        trace_note("ptrace", strerror(errno));
        fprintf(stderr, "crashcheck: ptrace is not permitted: %s\n", strerror(errno));
        kill(command, SIGKILL);
        return 125;
    }
    if (socket < 0)
        let_begin(ready);
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
    end_as(status);
    return WEXITSTATUS(status);
}
