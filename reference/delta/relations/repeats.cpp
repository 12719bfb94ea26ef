// SPDX-License-Identifier: Apache-2.0
//
// The same call again, after another one and beside it. A kernel has no memory: what it computes is
// a function of the call, so the bits are the same every time, whatever was computed before in the
// workspace that it keeps (vLLM and FlashInfer keep one for all layers) and whatever is computed
// at the same time on another stream. Options::repeats says how often, Options::streams how many
// calls are in flight at once, each made by a thread of its own; every second of them is the same
// call with other values. With one stream the two calls take turns.
#include <array>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "reference/delta/calls/rows.hpp"
#include "reference/delta/relations/tables.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::relations {
namespace {

// The values are negated: every number of the state changes, and the extents do not.
call::Record with_other_values(const call::Record& record) {
  call::Record changed = record;
  calls::change(changed.inputs.at("v"), [](std::int64_t, double x) { return -x; });
  return changed;
}

Pairs defined_elements(const Run& run) {
  Pairs pairs;
  for (std::int64_t n = 0; n < run.plan.dims.rows; ++n) {
    pair_sequences(run, n, run, n, call::all_indices(run.plan.dims.HV), pairs);
  }
  return pairs;
}

// A call, what it gave at first, and what it gave where that was something else.
class Repeated {
 public:
  explicit Repeated(const Run& first) : first_(&first), defined_(defined_elements(first)) {}

  // Calls of several threads.
  void compare(const Run& again) {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, list] : defined_) {
      const call::Tensor& before = first_->outputs.at(name);
      const call::Tensor& now = again.outputs.at(name);
      for (const Pair& p : list) {
        const auto i = static_cast<std::int64_t>(p.base);
        if (!same(before[i], now[i])) other_[name].insert_or_assign(p.base, now[i]);
      }
    }
  }

  void claim(Trial& trial) const {
    for (const auto& [name, list] : defined_) {
      const call::Tensor& before = first_->outputs.at(name);
      for (const Pair& p : list) {
        const double x = before[static_cast<std::int64_t>(p.base)];
        trial.claim(name, p.base, x, x, 0.0);
      }
    }
  }
  void claim_differences(Trial& trial) const {
    for (const auto& [name, elements] : other_) {
      const call::Tensor& before = first_->outputs.at(name);
      for (const auto& [at, now] : elements) {
        trial.claim(name, at, before[static_cast<std::int64_t>(at)], now, 0.0);
      }
    }
  }

 private:
  const Run* first_;
  Pairs defined_;
  std::mutex mutex_;
  std::map<std::string, std::map<std::size_t, double>> other_;
};

// Calls f(0), f(1), .. from a thread each; what one of them throws is thrown here.
template <class F>
void at_once(int count, F&& f) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  threads.reserve(thrown.size());
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        f(i);
      } catch (...) {
        thrown[static_cast<std::size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& exception : thrown) {
    if (exception) std::rethrow_exception(exception);
  }
}

void repeated(Trial& trial) {
  const Options& options = trial.options();
  if (options.repeats < 1) return;  // says nothing
  const Run& base = trial.base();
  const Run other = trial.run(with_other_values(base.record));
  Repeated of_base(base);
  Repeated of_other(other);
  const auto again = [&](bool is_base) {
    (is_base ? of_base : of_other).compare(trial.run((is_base ? base : other).record));
  };
  if (options.streams < 2) {
    for (int n = 0; n < options.repeats; ++n) {
      again(true);
      if (n + 1 < options.repeats) again(false);
    }
  } else {
    at_once(options.streams, [&](int stream) {
      for (int n = 0; n < options.repeats; ++n) again(stream % 2 == 0);
    });
  }
  of_base.claim(trial);
  of_other.claim_differences(trial);
  of_base.claim_differences(trial);
}

constexpr std::array kRepeatsRelations{
    Relation{"repeated",
             "the same call again, after another one and beside it: the same bits every time",
             Demand::kSameBits, [](const call::Record&, const contract::Contract&) { return true; },
             repeated},
};

}  // namespace

std::span<const Relation> repeat_relations() { return kRepeatsRelations; }

}  // namespace goldenrule::relations
