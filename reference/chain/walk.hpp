// SPDX-License-Identifier: Apache-2.0
//
// One call, walked through for the judge: which request each row is and where its ledger stands
// (entry.cpp), what the row starts from (starts.cpp), what it leaves (advance.cpp), and what the
// call does to other slots (walk.cpp).
#pragma once

#include <span>

#include "fixtures/call/chain_rows.hpp"
#include "reference/chain/memory.hpp"
#include "reference/chain/naming.hpp"

namespace goldenrule::chain {

/// A stored state beside what it may be.
struct Judged {
  Fit fit;
  bool vacuous = false;
};
[[nodiscard]] inline Judged judged(const Block& x, const Allowed& allowed) {
  return {fit(x, allowed), allowed.vacuous};
}

/// One row while its call is walked through.
struct RowWalk {
  call::ChainRow id;
  std::int64_t row = 0;
  std::int64_t slot = -1;  ///< that it starts from, as the call names it
  std::int64_t tokens = 0;
  std::int64_t position = 0;
  bool fresh = false;              ///< a new request
  bool taken = false;              ///< its start is taken for right: nothing is known of it
  Known ledger;                    ///< of its start
  std::optional<Stored> expected;  ///< what its last call, or the checkpoint, left
  std::optional<Stored> start;     ///< as stored
  bool departed = false;           ///< its start is a finding
  /// How the start lies in what the ledger allows; absent where it is what was left, bit for bit.
  std::optional<Judged> judged;
};

/// Bit for bit, or rounded once more where the type of `start` is narrower; a NaN is a NaN.
[[nodiscard]] bool continues(const Stored& left, const Stored& start);

/// Four digits.
[[nodiscard]] std::string number(double x);

/// How far a state is from what it may be.
[[nodiscard]] std::string words_of(const Fit& fit, std::size_t elements);

/// Says how many tokens of its last call a request has kept, where nobody had.
void close_count(const verdict::Slice& slice, const Layout& layout, std::int64_t kept,
                 Request& request);

class CallWalk {
 public:
  CallWalk(const verdict::Slice& slice, Memory& memory, const Call& call,
           const call::Record& record, const call::Dims& dims, const contract::Contract& contract);

  [[nodiscard]] std::vector<Finding> run();

 private:
  // entry.cpp
  void enter(RowWalk& row);
  void enter_again(RowWalk& row, Request& request);
  [[nodiscard]] bool take_state_of(std::int64_t id, RowWalk& row);
  void take_former(std::int64_t id, RowWalk& row) const;
  [[nodiscard]] bool take_stored(const Request& source, RowWalk& row) const;
  [[nodiscard]] std::optional<std::int64_t> reached(std::int64_t id) const;
  void restore(RowWalk& row);
  void restore_from_dump(RowWalk& row);
  void suspect_takeover(RowWalk& row);
  [[nodiscard]] bool settle(RowWalk& row, Request& request);
  void report_open(const RowWalk& row, const Request& request);
  // starts.cpp
  void compare_start(RowWalk& row) const;
  void judge_start(RowWalk& row);
  [[nodiscard]] std::optional<Stored> held_in(std::int64_t slot) const;
  [[nodiscard]] std::optional<Writer> other_writer(const RowWalk& row) const;
  void name_departures();
  [[nodiscard]] std::vector<Rolled> rolled_at_rest(std::int64_t mtp) const;
  [[nodiscard]] bool counts_of_next_row() const;
  [[nodiscard]] std::optional<Rolled> rolled(const RowWalk& row) const;
  // advance.cpp
  [[nodiscard]] bool stores_states() const;
  void advance();
  [[nodiscard]] bool carry(std::vector<Request>& requests);
  void step(std::vector<Request>& requests);
  [[nodiscard]] std::vector<Request> begin_requests();
  void remember_requests(std::vector<Request> requests);
  void name_states();
  struct LeftState {
    const call::Snapshot* snapshot;
    Stored stored;
    std::optional<Judged> judged;  ///< absent: the row has no ledger
  };
  [[nodiscard]] std::vector<LeftState> states_of(const Step& step, const RowWalk& row) const;
  void judge_states(std::vector<LeftState> states, RowWalk& row, Request& request);
  // layer_rule.cpp
  void judge_rule();
  void report_change(const LayerRule& rule, const std::vector<LayerValue>& seen,
                     const LayerValue& now);
  // layer.cpp
  void judge_parameters();
  void judge_range(const Step& step, const RowWalk& row, Request& request);
  void judge_outputs(const Step& step, std::vector<Request>& requests);
  // walk.cpp
  void check_counts(std::span<const std::int64_t> bounds) const;
  void read_rows();
  void judge_frame();
  void remember_pool();

  Finding& report(Check check, const RowWalk& row, std::string text);
  [[nodiscard]] std::optional<Stored> block(const char* group, const std::string& name,
                                            std::int64_t index) const;
  [[nodiscard]] const call::Tensor* output(const std::string& name) const;

  struct Departure {
    std::size_t finding, row;
    Name name;
  };
  struct WrongState {
    std::size_t finding, row;
    Block x;
    std::int64_t position, after;
  };

  const verdict::Slice& slice_;
  Memory& memory_;
  const Call& call_;
  const call::Record& record_;
  const call::Dims& dims_;
  const contract::Contract& contract_;
  const Layout& layout_;
  bool stored_;                     ///< the call has its states
  std::optional<call::Plan> plan_;  ///< where it has
  std::shared_ptr<const call::Record> tokens_;
  std::vector<RowWalk> rows_;
  std::vector<Finding> findings_;
  std::vector<Departure> departures_;
  std::vector<WrongState> wrong_;
};

}  // namespace goldenrule::chain
