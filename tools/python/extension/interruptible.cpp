// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/interruptible.hpp"

#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "fixtures/parallel/stop.hpp"
#include "fixtures/parallel/threads.hpp"

namespace goldenrule::python {

bool run_interruptibly(const std::function<void()>& job, const std::function<bool()>& interrupted) {
  constexpr std::chrono::milliseconds kBetweenQuestions(20);
  std::atomic<bool> stop = false;
  std::exception_ptr failure;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::thread worker([&] {
    try {
      std::fesetenv(FE_DFL_ENV);  // also of the threads that this one starts
      parallel::limit_threads();
      const parallel::Stoppable lent(&stop);
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    ended.notify_one();
  });
  bool asked_to_stop = false;
  std::unique_lock lock(mutex);
  while (!ended.wait_for(lock, kBetweenQuestions, [&] { return done; })) {
    if (asked_to_stop) continue;
    lock.unlock();
    asked_to_stop = interrupted();
    stop = asked_to_stop;
    lock.lock();
  }
  lock.unlock();
  worker.join();
  if (asked_to_stop) return false;
  if (failure) std::rethrow_exception(failure);
  return true;
}

}  // namespace goldenrule::python
