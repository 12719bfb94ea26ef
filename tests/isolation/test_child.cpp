// SPDX-License-Identifier: Apache-2.0
//
// A job in a child process that crashes, loops, takes all memory, answers nonsense or tries to
// leave is one Error, and what it did is gone with it.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/isolation/child.hpp"
#include "fixtures/parallel/for_each_index.hpp"

using namespace goldenrule;
using isolation::Answer;

namespace {

constexpr isolation::Limits kLimits{
    .memory_bytes = 64 << 20, .answer_bytes = 1 << 20, .seconds = 1};

int null_descriptor() {
  static const int fd = ::open("/dev/null", O_RDONLY);
  return fd;
}

template <class Job>
std::string answer_of(const Job& job, const isolation::Limits& limits = kLimits) {
  const isolation::Shared answer = isolation::run(null_descriptor(), limits, job);
  const auto bytes = answer.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Job>
std::string ending_of(const Job& job, const isolation::Limits& limits = kLimits) {
  try {
    (void)isolation::run(null_descriptor(), limits, job);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::kUnsafe);
    CHECK(e.expected() == "a file that the HDF5 library can read");
    return e.actual();
  }
  return "an answer";
}

[[noreturn]] void loop_for_ever() {
  std::atomic<int> i{0};
  while (true) ++i;
}

void say(const Answer& answer, const std::string& text) {
  answer.append(std::as_bytes(std::span(text)));
}

// What errno a system call leaves, as the child's answer.
template <class Call>
std::string errno_of(const Call& call) {
  return answer_of([&](int, const Answer& answer) {
    errno = 0;
    call();
    say(answer, std::strerror(errno));
  });
}

}  // namespace

TEST_SUITE("isolation") {
  TEST_CASE("what the child appends is what the parent gets") {
    CHECK(answer_of([](int, const Answer&) {}).empty());
    CHECK(answer_of([](int, const Answer& answer) {
            say(answer, "one ");
            say(answer, "two");
          }) == "one two");
    const std::string large(1 << 19, 'x');
    CHECK(answer_of([&](int, const Answer& answer) { say(answer, large); }) == large);
  }

  TEST_CASE("memory of the parent is as it was") {
    int value = 1;
    CHECK(answer_of([&](int, const Answer& answer) {
            value = 2;
            say(answer, std::to_string(value));
          }) == "2");
    CHECK(value == 1);
  }

  TEST_CASE("a crash, an exit, an exception: one error that names it") {
    CHECK(ending_of([](int, const Answer&) { ::raise(SIGKILL); }) ==
          "the process that reads it ended by signal 9 (SIGKILL)");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which catch these
    CHECK(ending_of([](int, const Answer&) { ::raise(SIGSEGV); }) ==
          "the process that reads it ended by signal 11 (SIGSEGV)");
    CHECK(ending_of([](int, const Answer&) { std::abort(); }) ==
          "the process that reads it ended by signal 6 (SIGABRT)");
#endif
    CHECK(ending_of([](int, const Answer&) { std::_Exit(1); }) ==
          "the process that reads it ended with exit code 1");
    CHECK(ending_of([](int, const Answer&) { throw 1; }) ==
          "the process that reads it ended with exit code 122");
  }

  TEST_CASE("no job takes longer than its limit, whether it computes or waits") {
    const auto start = std::chrono::steady_clock::now();
    // By the clock only where others leave it less than a tenth of a processor.
    const std::string computes = ending_of([](int, const Answer&) { loop_for_ever(); });
    CHECK((computes == "the process that reads it took more than 1 s" ||
           computes == "the process that reads it did not end in ten times 1 s"));
    isolation::Limits brief = kLimits;
    brief.seconds = 0.1;
    CHECK(ending_of(
              [](int, const Answer&) {
                std::this_thread::sleep_for(std::chrono::hours(1));
                loop_for_ever();
              },
              brief)
              .find("the process that reads it") == 0);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  }

  TEST_CASE("nor more memory, nor a larger answer") {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which map terabytes
    CHECK(ending_of([](int, const Answer&) { std::vector<char> much(100 << 20, 'x'); }) ==
          "the process that reads it needed more than 67108864 bytes of memory");
#endif
    CHECK(ending_of([](int, const Answer& answer) { say(answer, std::string(2 << 20, 'x')); }) ==
          "the process that reads it returned more than 1048576 bytes");
  }

  TEST_CASE("it holds nothing but its file") {
    const int mine = ::open("/dev/null", O_RDONLY);
    const std::string held = answer_of([&](int file, const Answer& answer) {
      std::string open(100, '.');
      for (std::size_t fd = 0; fd < open.size(); ++fd) {
        if (::lseek(static_cast<int>(fd), 0, SEEK_CUR) >= 0 || errno != EBADF) open[fd] = 'x';
      }
      CHECK(file == 3);
      say(answer, open);
    });
    ::close(mine);
    std::string three(100, '.');  // the file, the answer, and what says that it lives
    three[3] = three[4] = three[5] = 'x';
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(held == three);
#endif
  }

  TEST_CASE("and reaches nothing else where the kernel can filter system calls") {
    if (isolation::available() != isolation::Isolation::kProcessAndSystemCalls) {
      MESSAGE("no filter of system calls here");
      return;
    }
    const std::string refused = std::strerror(EPERM);
    CHECK(errno_of([] { (void)::open("/etc/passwd", O_RDONLY); }) == refused);
    CHECK(errno_of([] { (void)::socket(AF_INET, SOCK_STREAM, 0); }) == refused);
    CHECK(errno_of([] { (void)::fork(); }) == refused);
    CHECK(errno_of([] { (void)::execl("/bin/true", "true", nullptr); }) == refused);
    CHECK(errno_of([] { (void)::unlink("/tmp/no-such-file"); }) == refused);
    CHECK(errno_of([] { (void)::kill(::getppid(), 0); }) == refused);
  }

  TEST_CASE("loops of several jobs run in it, on its one thread") {
    parallel::for_each_index(8, [](std::int64_t) {});  // the parent has threads by now
    CHECK(answer_of([](int, const Answer& answer) {
            std::vector<int> done(100, 0);
            parallel::for_each_index(
                100, [&](std::int64_t i) { done[static_cast<std::size_t>(i)] = 1; });
            int sum = 0;
            for (const int x : done) sum += x;
            say(answer, std::to_string(sum));
          }) == "100");
  }

  TEST_CASE("many, one after the other and side by side") {
    for (int i = 0; i < 50; ++i) {
      CHECK(answer_of([&](int, const Answer& answer) { say(answer, std::to_string(i)); }) ==
            std::to_string(i));
    }
    std::vector<std::string> said(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < said.size(); ++i) {
      threads.emplace_back([&said, i] {
        said[i] =
            answer_of([&](int, const Answer& answer) { say(answer, std::string(i + 1, 'x')); });
      });
    }
    for (std::thread& t : threads) t.join();
    for (std::size_t i = 0; i < said.size(); ++i) CHECK(said[i] == std::string(i + 1, 'x'));
  }

  TEST_CASE("a program that ignores the end of its children gets the answer all the same") {
    const auto before = std::signal(SIGCHLD, SIG_IGN);
    CHECK(answer_of([](int, const Answer& answer) { say(answer, "here"); }) == "here");
    std::signal(SIGCHLD, before);
  }

  TEST_CASE("pages that were read can be given back") {
    isolation::Shared answer =
        isolation::run(null_descriptor(), kLimits,
                       [](int, const Answer& to) { say(to, std::string(100'000, 'x')); });
    answer.release(50'000);
    CHECK(answer.bytes()[99'999] == std::byte{'x'});
    CHECK(answer.bytes()[0] == std::byte{0});         // gone
    CHECK(answer.bytes()[49'999] == std::byte{'x'});  // its page is not done with
  }
}
