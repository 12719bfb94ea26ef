// SPDX-License-Identifier: Apache-2.0
//
// Continuous batching, as bookkeeping alone: which request is admitted when and into which slot,
// how its prompt is cut, when it decodes, drafts, is preempted and comes back. Everything is
// drawn from the seed of the scenario, and nothing depends on a number that a kernel computes, so a
// server with a mistake makes the same schedule as an honest one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "fixtures/cases/delta_scenario.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/serving/schedule.hpp"

namespace goldenrule::serving {

/// What the server knows of a request.
struct Request {
  std::int64_t prompt = 0, total = 0;  ///< tokens of the prompt; with those of the answer
  std::int64_t shared = 0;             ///< first tokens that are those of the request before it
  std::int64_t position = 0;           ///< tokens that its state has seen
  std::vector<std::int64_t> slots;     ///< none: it has no state on the device
  std::int64_t column = 1;             ///< its state lies in slots[column - 1]
  bool started = false;                ///< it has been admitted before
  bool swapped = false;                ///< its state is kept elsewhere
  std::set<std::int64_t> snapshots;    ///< positions of which a state is kept
  Stretch replayed;                    ///< what its last MTP call accepted
  std::int64_t singles = 0;            ///< decode steps since then
  std::int64_t restored_from = -1;     ///< whose snapshot its next row starts from; -1: none
};

class Scheduler {
 public:
  explicit Scheduler(const cases::Scenario& scenario);

  /// The next step; nothing when all requests are done.
  [[nodiscard]] std::optional<Step> next();

  [[nodiscard]] const std::vector<Request>& requests() const { return requests_; }
  [[nodiscard]] std::int64_t slot_count() const { return slot_count_; }

 private:
  std::int64_t draw(std::int64_t low, std::int64_t high);  // uniform, both ends included
  Request& at(std::int64_t request) { return requests_[static_cast<std::size_t>(request)]; }
  [[nodiscard]] Place state_of(std::int64_t request) const;
  void iterate();  // one round over the batch: up to three steps
  void retire();
  void leave(std::size_t row);
  void preempt();
  void roll_back();
  void admit();
  void transfer(std::int64_t request);
  void keep_snapshot(std::int64_t request, const Place& from);
  void add_prefill(const std::vector<std::int64_t>& requests);
  void add_decode(const std::vector<std::int64_t>& requests);
  void add_mtp(const std::vector<std::int64_t>& requests);
  void accept(std::int64_t place, const Row& row);
  Row row_of(std::int64_t request);
  void push(call::Mode mode, std::vector<Row> rows);

  const cases::Scenario scenario_;
  random::Stream stream_;
  std::int64_t draws_ = 0;
  std::vector<Request> requests_;
  std::deque<std::int64_t> waiting_;  // not in the batch
  std::vector<std::int64_t> batch_;   // request of each row
  std::vector<std::int64_t> free_;    // groups of slots, the last is taken first
  std::int64_t slot_count_ = 0;
  std::vector<Move> pending_;
  std::deque<Step> steps_;
  bool compacted_ = false;
};

}  // namespace goldenrule::serving
