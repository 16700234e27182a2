/* The rest of a program for machines whose C library is not installed. */
int plain_work(int n);
void _start(void);

void _start(void)
{
        plain_work(7);
        for (;;)
                ;
}
