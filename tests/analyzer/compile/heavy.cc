// A unit that leans on the standard library: its output must not depend on instrumentation.
#include <algorithm>
#include <any>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#ifdef WITH_REGEX // two thirds of the time that compiling takes
#include <regex>
#endif
#include <set>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

struct base {
    virtual ~base() = default;
    virtual std::string name() const = 0;
};
struct left : virtual base {
    long l = 1;
    std::string name() const override { return "left"; }
};
struct right : virtual base {
    long r = 2;
};
struct both : left, right {
    std::string name() const override { return "both" + std::to_string(l + r); }
};

template <class... T> static auto sum(T... values) { return (values + ...); }

static thread_local int mine = 5;

static std::string words()
{
    std::unordered_map<std::string, std::vector<int>> index;
    std::istringstream in("the quick brown fox jumps over the lazy dog and the fox sleeps");
    std::string word;
    for (int at = 0; in >> word; ++at)
        index[word].push_back(at);
    std::map<std::string, std::vector<int>> sorted(index.begin(), index.end());
    std::ostringstream out;
    for (auto &[key, places] : sorted) {
        out << key << ':';
        for (int place : places)
            out << place << ',';
    }
#ifdef WITH_REGEX
    return std::regex_replace(out.str(), std::regex("([a-z]+):(\\d+)"), "$2=$1");
#else
    return out.str();
#endif
}

static int nested(int depth)
{
    struct noisy {
        std::vector<int> v{1, 2, 3};
        ~noisy() { mine += static_cast<int>(v.size()); }
    } keep;
    try {
        if (depth == 0)
            throw std::out_of_range("deep");
        return nested(depth - 1) + 1;
    } catch (const std::out_of_range &) {
        if (depth < 3)
            throw;
        return depth;
    }
}

int main()
{
    std::cout << words() << '\n' << nested(6) << ' ' << mine << '\n';
    std::unique_ptr<base> object = std::make_unique<both>();
    std::cout << object->name() << ' ' << dynamic_cast<right &>(*object).r << '\n';
    std::variant<int, std::string, std::vector<double>> value = std::vector<double>{1.5, 2.5};
    std::cout << std::visit([](auto &&held) -> std::string {
        using held_type = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<held_type, std::vector<double>>)
            return std::to_string(std::accumulate(held.begin(), held.end(), 0.0));
        else
            return "other";
    }, value) << '\n';
    std::vector<std::future<long>> results;
    std::mutex lock;
    std::atomic<long> total{0};
    for (long start = 0; start < 4; ++start)
        results.push_back(std::async(std::launch::async, [&, start] {
            long local = 0;
            for (long i = start; i < 10000; i += 4) {
                local += i;
                total.fetch_add(i, std::memory_order_relaxed);
            }
            std::lock_guard<std::mutex> guard(lock);
            return local;
        }));
    long joined = 0;
    for (auto &result : results)
        joined += result.get();
    std::cout << joined << ' ' << total.load() << '\n';
    std::list<std::tuple<int, long double, std::optional<std::string>>> rows;
    for (int i = 0; i < 9; ++i)
        rows.emplace_back(i * 7 % 5, 1.0L / (i + 1), i % 2 ? std::optional<std::string>("odd") : std::nullopt);
    rows.sort([](auto &a, auto &b) { return std::get<0>(a) < std::get<0>(b); });
    for (auto &[number, real, text] : rows)
        std::cout << number << ' ' << std::setprecision(12) << real << ' ' << text.value_or("-") << '\n';
    std::any boxed = std::string("boxed");
    std::function<std::string(std::any)> open = [](std::any held) { return std::any_cast<std::string>(held); };
    std::cout << open(boxed) << sum(1, 2.5, 'a') << '\n';
    try {
        std::cout << std::any_cast<int>(boxed);
    } catch (const std::bad_any_cast &error) {
        std::cout << error.what() << '\n';
    }
    std::vector<float> floats(1003);
    std::iota(floats.begin(), floats.end(), 0.5f);
    std::transform(floats.begin(), floats.end(), floats.begin(), [](float x) { return x * 1.25f - 3; });
    std::cout << std::accumulate(floats.begin(), floats.end(), 0.0) << '\n';
    return 0;
}
