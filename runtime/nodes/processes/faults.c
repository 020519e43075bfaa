/* Faults: calls of nodes that fail with a chosen error and are not made: those of a number, or when that is ordered. */
#include <stdlib.h>

#include "fault_calls.h"
#include "nodes/parts.h"

#define FOR_EVER UINT16_MAX /* of `times` */
#define ERROR_BITS 16
#define ERROR ((1u << ERROR_BITS) - 1)

struct fault {
    const struct node *node;
    const struct fault_family *family;
    int64_t error;
    uint32_t number;
    uint32_t skip;  /* so many calls are made before one fails */
    uint16_t times; /* so many fail; 0: none yet */
    struct fault *next;
};

static struct fault *faults;

static bool matches(const struct fault *fault, const struct thread *thread)
{
    if (fault->node != thread->process->node || !fault_family_has(fault->family, (long)thread->called.orig_rax))
        return false;
    const struct object *object = object_at(thread, (int)argument(thread, 0));
    bool of_socket = object && object->kind >= STREAM;
    bool by_descriptor = fault_family_has(fault_family_named("write"), (long)thread->called.orig_rax);
    return fault->family->of_socket ? of_socket : !by_descriptor || descriptor_plain(thread, (int)argument(thread, 0));
}

static bool fails(struct fault *fault, const struct thread *thread)
{
    if (!fault->times || !matches(fault, thread))
        return false;
    if (fault->skip) {
        fault->skip--;
        return false;
    }
    if (fault->times != FOR_EVER)
        fault->times--;
    wire_event((struct cc_frame){.tag = CC_FAULT_MET, .node = fault->node->index, .number = fault->number}, NULL, NULL, 0);
    return true;
}

void fault_add(const struct node *node, const char *call, const struct cc_frame *order)
{
    struct fault *fault = calloc(1, sizeof *fault);
    if (!fault)
        abort();
    *fault = (struct fault){node, fault_family_named(call), order->other & ERROR, order->other >> ERROR_BITS, order->number, order->port, faults};
    if (!fault->family)
        fail("fault", call);
    faults = fault;
    for (struct process *process = node->processes; process; process = process->next)
        for (struct thread *thread = process->threads; thread; thread = thread->next)
            if (thread->state == HELD && fails(fault, thread))
                hold_ends(thread, -fault->error);
}

int64_t fault_of(const struct thread *thread)
{
    for (struct fault *fault = faults; fault; fault = fault->next)
        if (fails(fault, thread))
            return -fault->error;
    return 0;
}

bool fault_wants(const struct node *node, uint64_t number)
{
    for (const struct fault *fault = faults; fault; fault = fault->next)
        if (fault->node == node && fault_family_has(fault->family, (long)number))
            return true;
    return false;
}
