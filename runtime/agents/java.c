/* An agent of the Java virtual machine (JVMTI) that notes which Java methods make a system call. `java` loads it while it is
 * recorded (syscalls/stacks/preload.c). When a native method that may change files is about to be called for the first time, the
 * virtual machine asks for its address (NativeMethodBind); the answer is code of ours that notes the thread's stack in its
 * own frame (java_note.h) and calls the method. The recorder finds that frame on the thread's stack.
 *
 * JVMTI is a table of functions whose numbers its specification fixes, so that no header of a JDK is needed here. No C library
 * is linked either: that of the program may be another one than ours. What fails here leaves methods as they are. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "java_note.h"

#define SHOWN __attribute__((visibility("default")))
#define VERSION_1_2 0x30010200
#define METHOD_BIND_EVENT 67
#define START_EVENT 57
#define BUCKETS 4096u           /* of places */
#define THUNK_BYTES 32u
#define THUNKS (1u << 15)       /* native methods of a program */

/* Numbers in the table of JVMTI, from 0; in that of JNI; and of events in the table of callbacks. */
enum { EVENT_MODE = 1, ALLOCATE = 45, DEALLOCATE = 46, CLASS_SIGNATURE = 47, SOURCE_FILE = 49, CLASS_LOADER = 56, METHOD_NAME = 63,
       METHOD_CLASS = 64, LINE_TABLE = 69, STACK_TRACE = 103, CALLBACKS = 121, CAPABILITIES = 141 };
enum { DELETE_LOCAL_REFERENCE = 23, GET_ENVIRONMENT = 6 };
enum { AT_START = 7, AT_METHOD_BIND = 17, CALLBACK_COUNT = 37 };

typedef void *(**interface)[];  /* an environment of JVMTI or JNI: it begins with the address of its table */
struct frame {
    void *method;
    int64_t location;
};
struct line {
    int64_t start;
    int32_t number;
};
struct wrapped {
    void *native;
    uint64_t words;             /* of arguments, at most */
};

static interface machine;
static struct cc_java_place *places[BUCKETS];
static unsigned char *thunks;
static uint32_t thunk_count;
static bool started;

/* What has no variable arguments is called as if it had: on x86-64 that is the same. */
#define CALL(environment, number, ...) ((int (*)(void *, ...))(**(environment))[number])((environment), ##__VA_ARGS__)

/* Called by java.c's code alone, from assembly. */
__attribute__((visibility("hidden"), used)) void cc_java_note_stack(struct cc_java_note *note, interface jni);

/* Where a thunk goes, with its struct wrapped in r11: the arguments of a native method are kept, the stack is noted, and the
 * method is called with them. */
_Static_assert(sizeof(struct cc_java_note) == CC_JAVA_NOTE_BYTES, "the assembly below has it as a number");
__asm__(".text\n"
        ".hidden cc_java_pass_on\n"
        ".globl cc_java_pass_on\n"
        ".type cc_java_pass_on, @function\n"
        "cc_java_pass_on:\n"
        ".cfi_startproc\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbp, -16\n"
        "mov %rsp, %rbp\n"
        ".cfi_def_cfa_register %rbp\n"
        "sub $656, %rsp\n"
        "mov %r11, -536(%rbp)\n"
        "mov %rdi, -544(%rbp)\n"
        "mov %rsi, -552(%rbp)\n"
        "mov %rdx, -560(%rbp)\n"
        "mov %rcx, -568(%rbp)\n"
        "mov %r8, -576(%rbp)\n"
        "mov %r9, -584(%rbp)\n"
        "movsd %xmm0, -592(%rbp)\n"
        "movsd %xmm1, -600(%rbp)\n"
        "movsd %xmm2, -608(%rbp)\n"
        "movsd %xmm3, -616(%rbp)\n"
        "movsd %xmm4, -624(%rbp)\n"
        "movsd %xmm5, -632(%rbp)\n"
        "movsd %xmm6, -640(%rbp)\n"
        "movsd %xmm7, -648(%rbp)\n"
        "mov %rdi, %rsi\n"
        "lea -528(%rbp), %rdi\n"
        "call cc_java_note_stack\n"
        "mov -536(%rbp), %r11\n"
        "mov 8(%r11), %r10\n"
        "test $1, %r10\n"
        "jz 1f\n"
        "sub $8, %rsp\n"
        "1: test %r10, %r10\n"
        "jz 2f\n"
        "push 8(%rbp,%r10,8)\n"
        "dec %r10\n"
        "jmp 1b\n"
        "2: mov -544(%rbp), %rdi\n"
        "mov -552(%rbp), %rsi\n"
        "mov -560(%rbp), %rdx\n"
        "mov -568(%rbp), %rcx\n"
        "mov -576(%rbp), %r8\n"
        "mov -584(%rbp), %r9\n"
        "movsd -592(%rbp), %xmm0\n"
        "movsd -600(%rbp), %xmm1\n"
        "movsd -608(%rbp), %xmm2\n"
        "movsd -616(%rbp), %xmm3\n"
        "movsd -624(%rbp), %xmm4\n"
        "movsd -632(%rbp), %xmm5\n"
        "movsd -640(%rbp), %xmm6\n"
        "movsd -648(%rbp), %xmm7\n"
        "call *(%r11)\n"
        "leave\n"
        ".cfi_def_cfa %rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size cc_java_pass_on, .-cc_java_pass_on\n");
extern const char cc_java_pass_on[] __attribute__((visibility("hidden")));

static bool begins(const char *text, const char *with)
{
    while (*with && *text == *with)
        text++, with++;
    return !*with;
}

static uint32_t length_of(const char *text)
{
    uint32_t length = 0;
    while (text[length])
        length++;
    return length;
}

static uint32_t append(struct cc_java_place *place, uint32_t at, const char *text, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        place->text[at + i] = text[i];
    return at + size;
}

static void release(void *allocated)
{
    if (allocated)
        CALL(machine, DEALLOCATE, allocated);
}

/* What the virtual machine itself puts between the methods of a program, under names that differ from run to run. */
static bool is_machinery(const char *class)
{
    for (const char *letter = class; *letter; letter++)
        if (*letter == '.')     /* a hidden class, as of a lambda expression */
            return true;
    return begins(class, "Ljdk/internal/reflect/") || begins(class, "Lsun/reflect/") || begins(class, "Ljava/lang/invoke/") ||
           begins(class, "Ljava/lang/reflect/");
}

/* A new place. `class`: Lcom/shop/Cart$Item; `source`: Cart.java, or NULL if the class does not have it. */
static struct cc_java_place *described(const struct frame *frame, const char *class, const char *source, const char *name)
{
    static const char ends[] = ".java";
    struct cc_java_place *place = NULL;
    uint32_t end = length_of(class) - 1, folder = 1, outer;
    for (uint32_t i = 1; i < end; i++)
        if (class[i] == '/')
            folder = i + 1;
    for (outer = folder; outer < end && (class[outer] != '$' || outer == folder);)
        outer++;
    uint32_t size = end + (source ? length_of(source) : outer) + sizeof ends + end + 1 + length_of(name);
    if (CALL(machine, ALLOCATE, (int64_t)(sizeof *place + size), &place) != 0)
        return NULL;
    *place = (struct cc_java_place){.method = (uint64_t)(uintptr_t)frame->method, .location = frame->location};
    if (is_machinery(class))
        return place;
    uint32_t at = append(place, 0, class + 1, folder - 1);
    if (source) {
        at = append(place, at, source, length_of(source));
    } else {
        at = append(place, at, class + folder, outer - folder);
        at = append(place, at, ends, sizeof ends - 1);
    }
    place->file_bytes = at;
    at = append(place, at, class + folder, end - folder);
    at = append(place, at, ".", 1);
    at = append(place, at, name, length_of(name));
    place->name_bytes = at - place->file_bytes;
    return place;
}

static void add_lines(struct cc_java_place *place, void *method)
{
    struct line *lines = NULL;
    int32_t count = 0;
    if (CALL(machine, LINE_TABLE, method, &count, &lines) != 0)
        return;
    int64_t latest = -1;
    for (int32_t i = 0; i < count; i++) {
        uint32_t number = (uint32_t)lines[i].number;
        if (lines[i].start <= place->location && lines[i].start >= latest) {
            latest = lines[i].start;
            place->line = number;
        }
        if (!place->first_line || number < place->first_line)
            place->first_line = number;
    }
    release(lines);
}

static struct cc_java_place *new_place(const struct frame *frame, interface jni)
{
    char *class = NULL, *source = NULL, *name = NULL;
    void *holder = NULL;
    struct cc_java_place *place = NULL;
    if (CALL(machine, METHOD_CLASS, frame->method, &holder) != 0)
        return NULL;
    if (CALL(machine, CLASS_SIGNATURE, holder, &class, NULL) == 0 && CALL(machine, METHOD_NAME, frame->method, &name, NULL, NULL) == 0) {
        if (CALL(machine, SOURCE_FILE, holder, &source) != 0)
            source = NULL;
        place = described(frame, class, source, name);
        if (place && place->file_bytes)
            add_lines(place, frame->method);
    }
    CALL(jni, DELETE_LOCAL_REFERENCE, holder);
    release(class);
    release(source);
    release(name);
    return place;
}

static struct cc_java_place *place_of(const struct frame *frame, interface jni)
{
    uint64_t method = (uint64_t)(uintptr_t)frame->method;
    struct cc_java_place **bucket = &places[(method >> 3 ^ (uint64_t)frame->location * 0x9e3779b97f4a7c15u >> 40) % BUCKETS];
    struct cc_java_place *first = __atomic_load_n(bucket, __ATOMIC_ACQUIRE), *place;
    for (place = first; place; place = place->next)
        if (place->method == method && place->location == frame->location)
            return place;
    place = new_place(frame, jni);
    if (!place)
        return NULL;
    for (place->next = first; !__atomic_compare_exchange_n(bucket, &place->next, place, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);)
        continue;               /* another thread may add the same place: both are right */
    return place;
}

void cc_java_note_stack(struct cc_java_note *note, interface jni)
{
    struct frame frames[CC_JAVA_DEEPEST];
    int32_t count = 0;
    note->count = 0;
    note->magic = CC_JAVA_NOTE;
    if (CALL(machine, STACK_TRACE, NULL, 0, (int32_t)CC_JAVA_DEEPEST, frames, &count) != 0)
        return;
    for (int32_t i = 0; i < count; i++) {
        struct cc_java_place *place = frames[i].location >= 0 ? place_of(&frames[i], jni) : NULL;
        if (place && place->file_bytes)
            note->place[note->count++] = (uint64_t)(uintptr_t)place;
    }
}

/* Whether a native method of the Java library may make a call that is recorded, or starts a program. */
static bool changes_or_sends(const char *class, const char *name)
{
    static const char *const classes[] = {
        "Ljava/io/FileOutputStream;", "Ljava/io/RandomAccessFile;", "Ljava/io/FileDescriptor;", "Ljava/io/UnixFileSystem;",
        "Ljava/nio/Mapped", "Lsun/nio/ch/FileDispatcherImpl;", "Lsun/nio/ch/UnixFileDispatcherImpl;", "Lsun/nio/ch/FileChannelImpl;",
        "Lsun/nio/fs/", "Ljava/util/prefs/FileSystemPreferences;", "Lsun/nio/ch/SocketDispatcher;", "Lsun/nio/ch/DatagramDispatcher;",
        "Lsun/nio/ch/DatagramChannelImpl;", "Lsun/nio/ch/UnixDispatcher;", "Ljava/net/SocketOutputStream;", "Ljava/lang/ProcessImpl;",
        "Ljava/lang/UNIXProcess;",
    };
    static const char *const names[] = {
        "write", "pwrite", "open", "force", "truncate", "transfer", "sync", "rename", "link", "symlink", "unlink", "mkdir", "rmdir",
        "delete", "create", "setLength", "copy", "directCopy", "bufferedCopy", "append", "allocate", "mknod", "exchange", "send",
        "socketWrite", "forkAndExec",
    };
    bool found = false;
    for (size_t i = 0; i < sizeof classes / sizeof *classes && !found; i++)
        found = begins(class, classes[i]);
    for (size_t i = 0; i < sizeof names / sizeof *names && found; i++)
        if (begins(name, names[i]))
            return !begins(name, "opendir");
    return false;
}

/* How many arguments a method with such a signature has: (JLjava/lang/String;[B)V has 3. */
static uint64_t arguments_of(const char *signature)
{
    uint64_t count = 0;
    for (const char *at = signature + 1; *at && *at != ')'; at++, count++) {
        while (*at == '[')
            at++;
        if (*at == 'L')
            while (at[1] && *at != ';')
                at++;
    }
    return count;
}

static void *thunk_for(void *native, uint64_t words)
{
    struct wrapped *wrapped = NULL;
    uint32_t number = __atomic_fetch_add(&thunk_count, 1, __ATOMIC_RELAXED);
    if (number >= THUNKS || CALL(machine, ALLOCATE, (int64_t)sizeof *wrapped, &wrapped) != 0)
        return native;
    *wrapped = (struct wrapped){native, words};
    unsigned char *code = thunks + (size_t)number * THUNK_BYTES;
    const uint64_t values[] = {(uint64_t)(uintptr_t)wrapped, (uint64_t)(uintptr_t)cc_java_pass_on};
    for (unsigned i = 0; i < 2; i++) { /* mov $wrapped, %r11; mov $cc_java_pass_on, %r10 */
        *code++ = 0x49;
        *code++ = i ? 0xba : 0xbb;
        for (unsigned byte = 0; byte < 8; byte++)
            *code++ = (unsigned char)(values[i] >> 8 * byte);
    }
    code[0] = 0x41;                    /* jmp *%r10 */
    code[1] = 0xff;
    code[2] = 0xe2;
    return thunks + (size_t)number * THUNK_BYTES;
}

static void method_binds(interface environment, interface jni, void *thread, void *method, void *native, void **instead)
{
    (void)environment;
    (void)thread;
    char *name = NULL, *signature = NULL, *class = NULL;
    void *holder = NULL, *loader = NULL;
    if (!__atomic_load_n(&started, __ATOMIC_ACQUIRE))
        return;
    if (CALL(machine, METHOD_NAME, method, &name, &signature, NULL) == 0 && CALL(machine, METHOD_CLASS, method, &holder) == 0 &&
        CALL(machine, CLASS_SIGNATURE, holder, &class, NULL) == 0 && CALL(machine, CLASS_LOADER, holder, &loader) == 0 &&
        (loader || changes_or_sends(class, name)))
        *instead = thunk_for(native, arguments_of(signature));
    if (loader)
        CALL(jni, DELETE_LOCAL_REFERENCE, loader);
    if (holder)
        CALL(jni, DELETE_LOCAL_REFERENCE, holder);
    release(name);
    release(signature);
    release(class);
}

/* Before it, what the events need may not be called. */
static void machine_starts(interface environment, interface jni)
{
    (void)environment;
    (void)jni;
    __atomic_store_n(&started, true, __ATOMIC_RELEASE);
}

/* The program's memory, without a C library. */
static void *executable_memory(size_t size)
{
    register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    register long file __asm__("r8") = -1;
    register long offset __asm__("r9") = 0;
    long answer = SYS_mmap;
    __asm__ volatile("syscall"
                     : "+a"(answer)
                     : "D"(0L), "S"(size), "d"((long)(PROT_READ | PROT_WRITE | PROT_EXEC)), "r"(flags), "r"(file), "r"(offset)
                     : "rcx", "r11", "memory");
    return answer < 0 && answer > -4096 ? NULL : (void *)answer;
}

SHOWN int Agent_OnLoad(interface java, char *options, void *reserved);

int Agent_OnLoad(interface java, char *options, void *reserved)
{
    (void)options;
    (void)reserved;
    static const unsigned char wanted[16] = {[1] = 0x18, [3] = 0x40}; /* sources, lines; native_method_bind_events */
    static void *callbacks[CALLBACK_COUNT];
    callbacks[AT_START] = (void *)machine_starts;
    callbacks[AT_METHOD_BIND] = (void *)method_binds;
    thunks = executable_memory((size_t)THUNKS * THUNK_BYTES);
    if (thunks && CALL(java, GET_ENVIRONMENT, &machine, VERSION_1_2) == 0 && CALL(machine, CAPABILITIES, wanted) == 0 &&
        CALL(machine, CALLBACKS, callbacks, (int32_t)sizeof callbacks) == 0 && CALL(machine, EVENT_MODE, 1, START_EVENT, NULL) == 0)
        CALL(machine, EVENT_MODE, 1, METHOD_BIND_EVENT, NULL);
    return 0;
}
