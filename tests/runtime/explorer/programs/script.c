/* Executes its arguments as commands on a mapped file, in order, and prints what it computed: FILE COMMAND...
 * rSIZE@OFFSET read, wSIZE@OFFSET=VALUE write, aSIZE@OFFSET add to, zSIZE@OFFSET make zero, cSIZE@OFFSET>OFFSET copy,
 * mSIZE@OFFSET>OFFSET copy by a string instruction, eSIZE@OFFSET>OFFSET compare, s@OFFSET length of a string,
 * xSIZE@OFFSET=VALUE exchange, kSIZE@OFFSET=VALUE exchange if it is 0, b8@OFFSET=BIT set a bit that may be lines away,
 * i8@OFFSET=VALUE add if it is odd, l8@OFFSET=BYTES read byte by byte until one is 2, vSIZE@OFFSET read, VSIZE@OFFSET write a
 * vector, o8@OFFSET=MASK read some of a vector, t8@OFFSET push, pop and store by the FPU,
 * dSIZE@OFFSET>OFFSET copy downwards, nSIZE@OFFSET>OFFSET compare, SSIZE@OFFSET=VALUE fill, by a string instruction,
 * RSIZE@OFFSET read by pread, GSIZE@OFFSET by lseek and read, L lock and unlock; the others map the file first,
 * ? continue only if what was computed is even, f forget it, p print it. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t sum;

static void add(uint64_t value)
{
    sum = (sum ^ value) * 0x9e3779b97f4a7c15ull >> 3;
}

static void vector(char what, size_t size, unsigned char *bytes, uint64_t mask)
{
    unsigned char room[64] = {0};
    bool wide = __builtin_cpu_supports("avx2"), widest = __builtin_cpu_supports("avx512f");
    uint32_t lanes[8];
    for (int i = 0; i < 8; i++)
        lanes[i] = mask >> i & 1 ? 0x80000000u : 0;
    if (what == 'o' && wide)
        __asm__ volatile("vmovdqu %2, %%ymm1\n vmaskmovps (%1), %%ymm1, %%ymm2\n vmovdqu %%ymm2, %0\n vzeroupper"
                         : "=m"(room) : "r"(bytes), "m"(lanes) : "memory", "xmm1", "xmm2");
    else if (what == 'v' && size == 64 && widest)
        __asm__ volatile("vmovdqu64 (%1), %%zmm1\n vmovdqu64 %%zmm1, %0\n vzeroupper" : "=m"(room) : "r"(bytes) : "memory", "xmm1");
    else if (what == 'v' && size >= 32 && wide)
        __asm__ volatile("vmovdqu (%1), %%ymm1\n vmovdqu %%ymm1, %0\n vzeroupper" : "=m"(room) : "r"(bytes) : "memory", "xmm1");
    else if (what == 'v')
        __asm__ volatile("movdqu (%1), %%xmm1\n movdqu %%xmm1, %0" : "=m"(room) : "r"(bytes) : "memory", "xmm1");
    else if (size == 64 && widest)
        __asm__ volatile("vmovdqu64 %1, %%zmm1\n vmovdqu64 %%zmm1, (%0)\n vzeroupper" : : "r"(bytes), "m"(room) : "memory", "xmm1");
    else if (size >= 32 && wide)
        __asm__ volatile("vmovdqu %1, %%ymm1\n vmovdqu %%ymm1, (%0)\n vzeroupper" : : "r"(bytes), "m"(room) : "memory", "xmm1");
    else
        __asm__ volatile("movdqu %1, %%xmm1\n movdqu %%xmm1, (%0)" : : "r"(bytes), "m"(room) : "memory", "xmm1");
    for (int i = 0; i < 64; i++)
        add(room[i]);
}

static void string(char what, size_t size, unsigned char *source, unsigned char *target, uint64_t value)
{
    bool same = true;
    if (what == 'S')
        __asm__ volatile("rep stosb" : "+D"(source), "+c"(size) : "a"(value) : "memory");
    else if (what == 'n')
        __asm__ volatile("cmp %%al, %%al\n repe cmpsb\n sete %3" : "+D"(target), "+S"(source), "+c"(size), "=r"(same) : : "memory", "cc");
    else {
        target += size - 1;
        source += size - 1;
        __asm__ volatile("std\n rep movsb\n cld" : "+D"(target), "+S"(source), "+c"(size) : : "memory", "cc");
    }
    add(same ? size : 1 + size);
}

static void by_calls(char what, int fd, size_t size, off_t from)
{
    unsigned char room[256] = {0};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (what == 'L') {
        add((uint64_t)(1 + fcntl(fd, F_SETLKW, &lock)));
        return;
    }
    if (what == 'R')
        add((uint64_t)pread(fd, room, size, from));
    else
        add((uint64_t)(lseek(fd, from, SEEK_SET) == from ? read(fd, room, size) : -1));
    for (size_t i = 0; i < sizeof room; i++)
        add(room[i]);
}

int main(int count, char **arguments)
{
    int fd = open(arguments[1], O_RDWR);
    unsigned char *base = NULL;
    for (int i = 2; i < count; i++) {
        char *text = arguments[i], what = *text++;
        size_t size = strtoul(text, &text, 10), from = *text == '@' ? strtoul(text + 1, &text, 10) : 0;
        uint64_t to = *text ? strtoul(text + 1, &text, 10) : 0;
        if (strchr("RGL", what)) {
            by_calls(what, fd, size, (off_t)from);
            continue;
        }
        if (!base && (base = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
            return 2;
        volatile uint8_t *bytes = base + from;
        if (what == 'r')
            add(size == 1   ? *bytes
                : size == 2 ? *(volatile uint16_t *)bytes
                : size == 4 ? *(volatile uint32_t *)bytes
                            : *(volatile uint64_t *)bytes);
        else if (what == 'w' && size == 1)
            *bytes = (uint8_t)to;
        else if (what == 'w' && size == 2)
            *(volatile uint16_t *)bytes = (uint16_t)to;
        else if (what == 'w' && size == 4)
            *(volatile uint32_t *)bytes = (uint32_t)to;
        else if (what == 'w')
            *(volatile uint64_t *)bytes = to;
        else if (what == 'a')
            *(volatile uint64_t *)bytes += to;
        else if (what == 'z')
            memset(base + from, 0, size);
        else if (what == 'c')
            memmove(base + to, base + from, size);
        else if (what == 'e')
            add(memcmp(base + to, base + from, size) == 0);
        else if (what == 's')
            add(strnlen((char *)base + from, 200));
        else if (what == 'x' && size == 1)
            add(__atomic_exchange_n(bytes, (uint8_t)to, __ATOMIC_SEQ_CST));
        else if (what == 'x')
            add(__atomic_exchange_n((uint32_t *)(void *)(base + from), (uint32_t)to, __ATOMIC_SEQ_CST));
        else if (what == 'k') {
            uint64_t none = 0;
            add(__sync_val_compare_and_swap((uint64_t *)(void *)(base + from), none, to));
        } else if (what == 'b') {
            bool was;
            __asm__ volatile("btsq %2, (%1)\n setc %0" : "=q"(was) : "r"(bytes), "r"(to * 67) : "memory", "cc");
            add(was);
        } else if (what == 'i') {
            if (*bytes & 1)
                *bytes = (uint8_t)(*bytes + to);
        } else if (what == 'l') {
            for (size_t at = 0; at < to && bytes[at] != 2; at++)
                add(bytes[at]);
        } else if (what == 't') {
            uint64_t popped;
            __asm__ volatile("fldt (%1)\n fstpt (%1)\n pushq (%1)\n popq %0" : "=r"(popped) : "r"(bytes) : "memory");
            add(popped);
        } else if (strchr("vVo", what))
            vector(what, size, base + from, to);
        else if (strchr("dnS", what))
            string(what, size, base + from, base + to, to);
        else if (what == 'f')
            sum = 0;
        else if (what == 'p')
            printf("%lx\n", sum);
        else if (what == 'm') {
            void *target = base + to, *source = base + from;
            __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(size) : : "memory");
        } else if (what == '?' && sum & 1) {
            break;
        }
    }
    return sum & 1 ? 1 : 0;
}
