/* Does to a mapped file what its arguments say, one after the other, and prints what it computed: FILE COMMAND...
 * rSIZE@OFFSET read, wSIZE@OFFSET=VALUE write, aSIZE@OFFSET add to, zSIZE@OFFSET make zero, cSIZE@OFFSET>OFFSET copy,
 * mSIZE@OFFSET>OFFSET copy by a string instruction, eSIZE@OFFSET>OFFSET compare, s@OFFSET length of a string,
 * ? go on only if what was computed is even, f forget it, p print it. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t sum;

static void add(uint64_t value)
{
    sum = (sum ^ value) * 0x9e3779b97f4a7c15ull >> 3;
}

int main(int count, char **arguments)
{
    int fd = open(arguments[1], O_RDWR);
    unsigned char *base = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return 2;
    for (int i = 2; i < count; i++) {
        char *text = arguments[i], what = *text++;
        size_t size = strtoul(text, &text, 10), from = *text == '@' ? strtoul(text + 1, &text, 10) : 0;
        uint64_t to = *text ? strtoul(text + 1, &text, 10) : 0;
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
