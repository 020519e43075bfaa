/* What our agent in a Java program (agents/java.c) leaves for the recorder of system calls (syscalls/stacks/java.c): the stack of the
 * thread, in the frame of the function through which it passes native methods on. */
#ifndef CRASHCHECK_JAVA_NOTE_H
#define CRASHCHECK_JAVA_NOTE_H

#include <stdint.h>

#define CC_JAVA_NOTE 0x6a6e6f7465636331u /* no address, and no small number */
#define CC_JAVA_DEEPEST 64u              /* frames; of deeper stacks the outermost are missing */
#define CC_JAVA_NOTE_BYTES 528           /* sizeof(struct cc_java_note); it ends at the frame pointer */

struct cc_java_note {
    uint64_t magic, count;
    uint64_t place[CC_JAVA_DEEPEST];     /* addresses of struct cc_java_place, innermost first */
};

/* A position in a method. It is never changed and never freed. */
struct cc_java_place {
    struct cc_java_place *next;          /* the agent's */
    uint64_t method;
    int64_t location;
    uint32_t line, first_line;           /* 0: the class has no lines; first_line: of the method */
    uint32_t file_bytes, name_bytes;     /* of text; file_bytes 0: a frame of the Java runtime's own, which is left out */
    char text[];                         /* its source, below a folder of sources (com/shop/Cart.java), then Cart.save */
};

#endif
