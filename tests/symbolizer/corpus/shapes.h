static inline int clamp_to(int n, int max)
{
        return n > max ? max : n;
}

static inline int square_of(int n)
{
        if (n > 46340)
                n = clamp_to(n, 46340);
        return n * n;
}
