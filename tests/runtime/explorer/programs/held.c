/* Keeps what it reads of the first line (and overwrites) in one register alone, in a page that it makes read-only or in the
 * file, then reads the second: FILE REGISTER. Ends with 1 if both were not 0. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT(in, out, ...)                                                                                                \
    __asm__ volatile("movzbl (%1), %%eax\n movb $0, (%1)\n" in "xorl %%eax, %%eax\n movzbl 64(%1), %%ecx\n" out                        \
                     "andl %%ecx, %%eax\n movl %%eax, %0"                                                               \
                     : "=r"(held)                                                                                      \
                     : "r"(base)                                                                                       \
                     : "eax", "ecx", "edx", "cc", "memory", __VA_ARGS__)

int main(int count, char **arguments)
{
    (void)count;
    unsigned char *base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(arguments[1], O_RDWR), 0);
    const char *name = arguments[2];
    unsigned held = 3;
    if (!strcmp(name, "rdx"))
        KEPT("movl %%eax, %%edx\n", "movl %%edx, %%eax\n", "r8");
    else if (!strcmp(name, "flags"))
        __asm__ volatile("movzbl (%1), %%eax\n movb $0, (%1)\n addb $255, %%al\n movl $0, %%eax\n movzbl 64(%1), %%ecx\n adcl $0, %%eax\n"
                         "andl %%ecx, %%eax\n movl %%eax, %0" : "=r"(held) : "r"(base) : "eax", "ecx", "cc", "memory");
    else if (!strcmp(name, "xmm"))
        KEPT("movd %%eax, %%xmm5\n", "movd %%xmm5, %%eax\n", "xmm5");
    else if (!strcmp(name, "x87"))
        KEPT("movl %%eax, -4(%%rsp)\n fildl -4(%%rsp)\n movl $0, -4(%%rsp)\n",
             "fistpl -4(%%rsp)\n movl -4(%%rsp), %%eax\n", "r8");
    else if (!strcmp(name, "mxcsr"))
        KEPT("shll $15, %%eax\n orl $0x1f80, %%eax\n movl %%eax, -4(%%rsp)\n ldmxcsr -4(%%rsp)\n movl $0, -4(%%rsp)\n",
             "stmxcsr -4(%%rsp)\n movl -4(%%rsp), %%eax\n shrl $15, %%eax\n movl $0x1f80, -4(%%rsp)\n ldmxcsr -4(%%rsp)\n", "r8");
    else if (!strcmp(name, "ymm") && __builtin_cpu_supports("avx2"))
        KEPT("vmovd %%eax, %%xmm4\n vpxor %%xmm5, %%xmm5, %%xmm5\n vinserti128 $1, %%xmm4, %%ymm5, %%ymm5\n vpxor %%xmm4, %%xmm4, %%xmm4\n",
             "vextracti128 $1, %%ymm5, %%xmm4\n vmovd %%xmm4, %%eax\n vzeroupper\n", "xmm4", "xmm5");
    else if (!strcmp(name, "zmm") && __builtin_cpu_supports("avx512f"))
        KEPT("vmovd %%eax, %%xmm4\n vpxor %%xmm5, %%xmm5, %%xmm5\n vinserti32x4 $3, %%xmm4, %%zmm5, %%zmm5\n vpxor %%xmm4, %%xmm4, %%xmm4\n",
             "vextracti32x4 $3, %%zmm5, %%xmm4\n vmovd %%xmm4, %%eax\n vzeroupper\n", "xmm4", "xmm5");
    else if (!strcmp(name, "zmm20") && __builtin_cpu_supports("avx512f"))
        KEPT("vmovd %%eax, %%xmm4\n vmovdqa64 %%zmm4, %%zmm20\n vpxor %%xmm4, %%xmm4, %%xmm4\n",
             "vmovdqa64 %%zmm20, %%zmm4\n vmovd %%xmm4, %%eax\n vzeroupper\n", "xmm4");
    else if (!strcmp(name, "k") && __builtin_cpu_supports("avx512f"))
        KEPT("kmovw %%eax, %%k3\n", "kmovw %%k3, %%eax\n", "r8");
    else if (!strcmp(name, "read-only")) {
        volatile unsigned char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY), 0);
        own[0] = base[0];
        base[0] = 0;
        mprotect((void *)own, 4096, PROT_READ);
        return base[64] && own[0];
    } else if (!strcmp(name, "file")) {
        munmap(base, 4096);
        volatile unsigned char first, second;
        int fd = open(arguments[1], O_RDONLY);
        pread(fd, (void *)&first, 1, 0);
        first = 0;
        pread(fd, (void *)&second, 1, 64);
        pread(fd, (void *)&first, 1, 0);
        return first && second;
    } else
        return base[0] && base[64];
    return held & 1;
}
