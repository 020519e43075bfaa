/* Frames between the controller of nodes and its caller, over one socket, read by world.py as well.
 *
 * A frame is a struct cc_frame and then `size` bytes. For each order the controller answers with what it led to, in the
 * order in which it happened, and CC_REST at its end.
 */
#ifndef CRASHCHECK_NODES_WIRE_H
#define CRASHCHECK_NODES_WIRE_H

#include <stdint.h>

#define CC_WIRE_VERSION 4

struct cc_frame {
    uint8_t tag;
    uint8_t node;
    uint16_t port;
    uint32_t number;   /* of a socket, or what the tag names */
    uint64_t value;    /* of an order: the node's clock in ns from now on */
    uint32_t size;
    uint32_t other;
};

/* An address is 16 bytes of IPv6 (of IPv4: mapped); its port is beside it. */
#define CC_ADDRESS 16

enum cc_start_flags {
    CC_START_PLACES = 1,   /* calls that send, and those in which threads wait that may continue, are placed (CC_CALLED) */
    CC_START_EXPLORES = 2, /* which of several threads continues is the caller's choice */
};

enum cc_order {
    CC_START = 1,      /* number: of this start; other: cc_start_flags; bytes: folder, trace or nothing, folder of what is its own of /tmp and /dev/shm, of the host's folders in these that it finds in its own the paths, with : between, count of words, words, variables, each ended by a 0 */
    CC_REQUEST,        /* number: the listening socket; other: the connecting one, which does not yet hear of it */
    CC_CONNECTED,      /* number: the connecting socket; other: 0, or the error */
    CC_ARRIVE,         /* number: a connected socket; bytes: data for it */
    CC_FINISH,         /* number: a connected socket, whose peer has ended its direction */
    CC_RESET,          /* number: a connected socket */
    CC_DATAGRAM,       /* number: a socket, port and bytes: sender's address, data */
    CC_FIRE,           /* number: of the timer, of this node */
    CC_FAULT,          /* bytes: name of a call, of which `port` fail (65535: all) after the next `number`; other: the error, and from bit 16 on the fault's number */
    CC_COMPLETE,       /* number: of the request to a file, of this node */
    CC_CONTINUE,       /* number: of the thread, of those that were offered last (CC_RUNNABLE) */
    CC_KILL,           /* all processes of the node; other: 1 if its machine loses the power, and its trace ends */
};

enum cc_event {
    CC_BOUND = 1,      /* number: socket; port, bytes: address; other: 6 or 17 */
    CC_LISTENING,      /* number: socket */
    CC_CONNECTING,     /* number: socket; port, bytes: address of the peer, own address; value: own port */
    CC_ACCEPTABLE,     /* number: the new socket at the listening side; other: the connecting socket */
    CC_SENT,           /* number: socket; bytes */
    CC_SHUT,           /* number: socket: its direction has ended */
    CC_CLOSED,         /* number: socket; other: 1 if it left bytes unread */
    CC_DATAGRAM_SENT,  /* number: socket; port, bytes: address of the receiver, own address, data; value: own port */
    CC_ARMED,          /* number: timer; value: when it is due, ns; other: 1 if that is a time from now; port: who arms it, a thread or a timer */
    CC_DISARMED,       /* number: timer */
    CC_SUBMITTED,      /* number: request to a file (io_submit) */
    CC_WITHDRAWN,      /* number: request that has ended, or that nobody awaits any more */
    CC_CLOCK_READ,
    CC_OUTPUT,         /* number: 1 or 2; bytes */
    CC_ENDED,          /* number: wait status */
    CC_UNCONTROLLED,   /* bytes: what; each once for each node */
    CC_FAILED,         /* the run is over; bytes: why */
    CC_UNREST,         /* the node did not rest in time */
    CC_COMPARED,       /* a time was compared; bytes: where; value: when the outcome is another one, UINT64_MAX: never */
    CC_REST,           /* all threads wait; number: 1 if calls changed files; port: 1 if the node has shared files as memory, which it may change at any time; value: calls that were answered; other: 1 if a process was started without namespaces */
    CC_FAULT_MET,      /* number: of the fault with which a call of the node fails */
    CC_CALLED,         /* number: the site of the call that the next event is about; other: its stack, of the node's trace */
    CC_RUNNABLE,       /* before CC_REST: number: a thread that may continue, which is the caller's choice; bytes: its name, if calls are placed */
};

#endif
