"""A server as a check or a workload: a shell command that starts it, waits until it is ready, asks it, and stops it."""

from __future__ import annotations

from crashcheck.command import Command

# What a server must have, each with an example; it may have `stop`, too.
EXAMPLES = {
    "start": "redis-server --port {port} --dir {pool}",
    "ready": "redis-cli -p {port} ping",
    "client": "./check {port} {acked}",
}
KEYS = (*EXAMPLES, "stop")

# The server's own output goes to standard error: what a check prints, and what is compared, is the client's.
# A server that died is one that `kill -0` no longer finds: a shell reaps its children while it waits for `sleep`.
# 143 is the status of a server that ended by our SIGTERM.
_SCRIPT = """\
{start} >&2 &
server=$!
until {{ {ready}
}} >/dev/null 2>&1; do
    if ! kill -0 $server 2>/dev/null; then
        wait $server; ended=$?
        echo "The server ended with status $ended before it was ready." >&2
        [ $ended -ne 0 ] || echo "If it went to the background: start must keep it in the foreground." >&2
        exit 1
    fi
    sleep 0.01
done
(
{client}
); status=$?
{{ {stop}
}} >&2 || kill $server
wait $server; ended=$?
if [ $status -eq 0 ] && [ $ended -gt 128 ] && [ $ended -ne 143 ]; then
    echo "The server was ended by signal $((ended - 128))." >&2; exit 1
fi
exit $status"""


def server_command(start: Command, ready: Command, client: Command, stop: Command | None) -> Command:
    """One run of a server; its status is the client's, or 1 if the server died.

    `start` stays in the foreground; `ready` is repeated until it exits with 0; `stop` is SIGTERM if not given.
    """
    script = _SCRIPT.format(
        start=f"(\n{start.text}\n)" if start.shell else start.text,
        ready=ready.text,
        client=client.text,
        stop="kill $server" if stop is None else stop.text,
    )
    return Command(script, ())
