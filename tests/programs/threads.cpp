// Threads that throw and catch, sort strings and match expressions: the frames of the C++ library and of its
// unwinder, below functions that are known.
#include <algorithm>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/truth.h"

static volatile unsigned long sink;

extern "C" {

TRUTH_FRAME void throws(int depth)
{
        std::string s(50, 'a');

        if (!depth)
                throw std::runtime_error(s);
        throws(depth - 1);
        sink = s.size();
}

TRUTH_FRAME void catches()
{
        for (int i = 0; i < 100; i++)
                try {
                        throws(10);
                } catch (std::exception &) {
                        sink = sink + 1;
                }
        TRUTH_KEEP();
}

TRUTH_FRAME void sorts()
{
        std::vector<std::string> v;
        std::map<std::string, int> m;

        for (int i = 0; i < 2000; i++)
                v.push_back(std::to_string(i * 7919 % 2003));
        std::sort(v.begin(), v.end(), [](const std::string &a, const std::string &b) { return a > b; });
        for (auto &s : v)
                m[s]++;
        sink = m.size();
}

TRUTH_FRAME void matches()
{
        std::regex r("([a-z]+)([0-9]*)x?");
        std::string s = "abcdefghijkl0123456789y";
        std::smatch m;

        for (int i = 0; i < 20; i++)
                sink = sink + std::regex_search(s, m, r);
}

TRUTH_FRAME void worker(double end)
{
        while (truth_now() < end) {
                catches();
                sorts();
                matches();
        }
        TRUTH_KEEP();
}
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        std::vector<std::thread> threads;

        printf("pid %d\n", getpid());
        // *: std::thread's own frames
        printf("chain *;catches;worker;*;" TRUTH_THREAD "\n");
        printf("chain *;sorts;worker;*;" TRUTH_THREAD "\n");
        printf("chain *;matches;worker;*;" TRUTH_THREAD "\n");
        printf("chain *;worker;*;" TRUTH_THREAD "\n");
        printf("chain *;main;" TRUTH_START "\n");
        truth_ready();
        for (int i = 0; i < 2; i++)
                threads.emplace_back([=] { worker(end); });
        for (auto &t : threads)
                t.join();
        return 0;
}
