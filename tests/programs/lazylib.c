/* Many functions, each called once through the PLT. */
#include <stdint.h>

#define EACH_DIGIT(m, p) m(p##0) m(p##1) m(p##2) m(p##3) m(p##4) m(p##5) m(p##6) m(p##7) m(p##8) m(p##9)
#define DEFINE(n)                                                          \
        uint64_t lazy_function_with_a_name_of_some_length_##n(uint64_t x); \
        uint64_t lazy_function_with_a_name_of_some_length_##n(uint64_t x)  \
        {                                                                  \
                return x * 3 + 1##n;                                       \
        }
#define CALL(n) x = lazy_function_with_a_name_of_some_length_##n(x);
#define EACH(m)          \
        EACH_DIGIT(m, 0) \
        EACH_DIGIT(m, 1) \
        EACH_DIGIT(m, 2) \
        EACH_DIGIT(m, 3) \
        EACH_DIGIT(m, 4) \
        EACH_DIGIT(m, 5) \
        EACH_DIGIT(m, 6) \
        EACH_DIGIT(m, 7) \
        EACH_DIGIT(m, 8) \
        EACH_DIGIT(m, 9)

EACH(DEFINE)

uint64_t lazy_work(uint64_t x);
uint64_t lazy_work(uint64_t x)
{
        EACH(CALL)
        return x + 1;
}
