/* A program with one function of a known place: what the tests of debug files strip, split and hide. It
 * prints the address of that function and waits until its input ends. */
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static int deep_inside(int x)
{
        __asm__ volatile("" ::: "memory");
        return x + (int)getpid();
}

int main(void)
{
        char c;

        printf("%p\n", (void *)deep_inside);
        fflush(stdout);
        return read(0, &c, 1) + deep_inside(1) == 0;
}
