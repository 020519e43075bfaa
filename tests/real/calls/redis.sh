#!/bin/sh
# redis.sh put FOLDER: five commands to a server that syncs its log for each. redis.sh get FOLDER FILE: every printed key is there.
# redis.sh fix FOLDER FILE: the same, once redis-check-aof has cut off an append that is there in part.
[ "$1" != fix ] || for log in "$2"/appendonlydir/*.incr.aof; do [ ! -f "$log" ] || yes | redis-check-aof --fix "$log" || exit 1; done
socket=$(mktemp -u /tmp/redis-XXXXXXXX)
redis-server --port 0 --unixsocket "$socket" --dir "$2" --appendonly yes --appendfsync always --save '' --logfile "$socket.log" &
server=$!
until redis-cli -s "$socket" ping 2>/dev/null | grep -q PONG; do
    kill -0 $server 2>/dev/null || { tail -n 1 "$socket.log"; rm -f "$socket.log"; exit 1; }
done
lost=0
if [ "$1" = put ]; then
    for i in 1 2 3 4 5; do redis-cli -s "$socket" set key$i value$i >/dev/null && echo key$i; done
else
    for key in $(cat "$3"); do [ "$(redis-cli -s "$socket" exists "$key")" = 1 ] || { echo "lost $key"; lost=1; }; done
fi
redis-cli -s "$socket" shutdown nosave
wait $server
rm -f "$socket.log"
exit $lost
