// C++ as the DWARF reader has to read it: namespaces with and without a name, templates, lambdas in and out
// of inlined functions, virtual calls, local classes, cold paths, calls inlined several levels deep.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "shapes.h"

namespace outer {
namespace {

struct Widget {
        int v;
        template <class F> __attribute__((noinline)) int each(F f)
        {
                int s = 0;
                for (int i = 0; i < v; i++)
                        s += f(i);
                return s;
        }
};

__attribute__((noinline)) int helper(int x)
{
        auto scale = [x](int y) { return x * y + 1; };
        Widget w{x};
        return w.each(scale) + w.each([](int z) { return z ^ 5; });
}

inline int third(int a) { return a * 3 + helper(a); }

inline int second(int a)
{
        int sum = 0;
        {
                for (int i = 0; i < a; i++) {
                        int part = third(i);
                        sum += part ^ a;
                }
        }
        return sum;
}

inline int first(int a)
{
        if (a > 3) {
                int b = second(a);
                return b + 2;
        }
        return 0;
}

} // namespace

namespace detail {
enum class Color { red, green };

template <Color C> struct Paint {
        static __attribute__((noinline)) int stroke(int n) { return C == Color::red ? n * 7 : n * 11; }
};
} // namespace detail

class Shape {
      public:
        explicit Shape(int s) : side(s) {}
        virtual ~Shape() {}
        virtual int area() const = 0;

      protected:
        int side;
};

class Square : public Shape {
      public:
        using Shape::Shape;
        int area() const override { return square_of(side) + first(side); }
};

class Ring : public Shape {
      public:
        explicit Ring(int s) : Shape(s) {}
        int area() const override;

      private:
        mutable std::map<int, std::string> names;
};

int Ring::area() const
{
        struct Local {
                int k;
                __attribute__((noinline)) int run(int n) const { return n > k ? n - k : clamp_to(n, k); }
        };
        Local l{side};
        names[side] = std::to_string(side);
        return l.run(side * 2) + static_cast<int>(names.size());
}

int risky(int n)
{
        if (__builtin_expect(n > 1000000, 0))
                throw std::runtime_error("too large: " + std::to_string(n));
        return detail::Paint<detail::Color::red>::stroke(n) + detail::Paint<detail::Color::green>::stroke(n + 1);
}
} // namespace outer

extern "C" int plain_work(int n);

int main(int argc, char **argv)
{
        std::vector<outer::Shape *> shapes;
        std::vector<int> sizes;
        int sum = 0;

        for (int i = 1; i < 10 * argc; i++) {
                sizes.push_back(i * 7 % 13);
                if (i % 2)
                        shapes.push_back(new outer::Square(i));
                else
                        shapes.push_back(new outer::Ring(i));
        }
        std::sort(sizes.begin(), sizes.end(), [](int a, int b) { return a > b; });
        for (outer::Shape *s : shapes) {
                sum += s->area();
                delete s;
        }
        try {
                sum += outer::risky(sizes[0] * argc);
        } catch (const std::exception &e) {
                puts(e.what());
        }
        printf("%d %d\n", sum, plain_work(sum));
        return 0;
}
