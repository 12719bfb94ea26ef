// SPDX-License-Identifier: Apache-2.0
//
// Long computations for an interpreter. Each runs on a thread of its own while the calling thread
// waits and asks, fifty times a second, whether the user wants to stop (only the interpreter's main
// thread can know). If so the computation is told (parallel/stop.hpp) and waited for, which takes
// as long as the job that its threads are at.
//
// The thread of its own has a second reason: the OpenMP runtime keeps the threads of whoever
// started them, and a copy of the process (os.fork) in which they are missing waits for them for
// ever. What starts and ends here leaves none behind on a thread that may fork later.
//
// And a third: a rounding mode, or zeros in the place of denormals (torch.set_flush_denormal,
// libraries that were linked with -ffast-math), would be inherited by it and void every
// certificate.
#pragma once

#include <functional>
#include <optional>
#include <utility>

namespace goldenrule::python {

/// Runs `job` and passes on what it throws; false: `interrupted` returned true, and what the job
/// did until then is lost. `interrupted` is called on the calling thread.
[[nodiscard]] bool run_interruptibly(const std::function<void()>& job,
                                     const std::function<bool()>& interrupted);

/// The same for a job with a result; nothing where it was interrupted.
template <class F>
[[nodiscard]] auto result_of(F&& job, const std::function<bool()>& interrupted) {
  std::optional<decltype(job())> result;
  const bool ended = run_interruptibly([&] { result.emplace(job()); }, interrupted);
  if (!ended) result.reset();
  return result;
}

}  // namespace goldenrule::python
