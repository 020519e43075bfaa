/* Makes a system call of 32-bit programs: getpid by the instruction int $0x80. */
#include <stdio.h>

int main(void)
{
    long number = 20;
    __asm__ volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
    puts(number == 2 ? "narrow" : "refused");
    return 0;
}
