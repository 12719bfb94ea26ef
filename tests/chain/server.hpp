// SPDX-License-Identifier: Apache-2.0
//
// A server of a few requests for the tests of chains: it draws tokens, runs an honest kernel of the
// contract that each call implies (emulated, with its roundings) on its pool, and hands over calls.
// A test makes the server err by changing its pool between two calls.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reference/chain/judge.hpp"

namespace goldenrule::testing {

struct ServedRow {
  std::int64_t request = 0, slot = 0;
  std::int64_t tokens = 1;    ///< prefill, packed MTP call
  std::int64_t accepted = 0;  ///< MTP call: tokens that are kept
  /// MTP: each token continues which one of the row, and which one is kept (-1: none); empty:
  /// each the one before it.
  std::vector<std::int64_t> parents = {};
  std::int64_t last = -1;
  bool fresh = false;               ///< starts from zero, at position 0
  std::int64_t restored_from = -1;  ///< the position must be set
};

struct ServerOptions {
  call::Op op = call::Op::kGatedDeltaRule;
  call::DType pool = call::DType::kF32;
  std::uint64_t seed = 1;
  double fastest_decay = -0.1, slowest_decay = -0.01;
  bool repeats = false;  ///< every call has the tokens of the first of its kind
  bool packed = false;   ///< the rows of an MTP call are packed, each of its own length
  /// What becomes of element i of v; empty: nothing.
  std::function<double(std::int64_t, double)> v = {};
};

class Server {
 public:
  static constexpr std::int64_t kSlots = 6, kH = 1, kHV = 2, kK = 16, kV = 16, kDrafts = 4;

  explicit Server(const ServerOptions& options);

  /// Serves one call; prefill keeps a checkpoint every 8 tokens. The kernel of an MTP call leaves
  /// the state that is kept in the slot.
  chain::Call serve(call::Mode mode, const std::vector<ServedRow>& rows);

  /// The prompts of requests 1 and 2, of 9 and 5 tokens, in slots 3 and 0.
  chain::Call serve_prompts();

  /// The state in `slot` of the pool, and its replacement.
  [[nodiscard]] std::vector<double> state(std::int64_t slot) const;
  void put(std::int64_t slot, const std::vector<double>& state);
  /// Block `at` of an output of the last call.
  [[nodiscard]] std::vector<double> left(const std::string& output, std::int64_t at) const;

  std::map<std::int64_t, std::int64_t> positions;  ///< of requests
  std::int64_t index = 0;                          ///< of the next call

 private:
  void draw_tokens(const call::Shape& tokens, call::Record& record);
  /// The outputs of the call, and what they leave in the pool.
  void compute(call::Record& record);
  call::Tensor draw(const std::string& name, call::Shape shape, double low, double high);

  ServerOptions options_;
  call::Tensor pool_;
  call::TensorMap last_;
};

/// All findings of a chain, and its summary.
struct Judged {
  std::vector<chain::Finding> findings;
  chain::Summary summary;
};
[[nodiscard]] Judged judge(const std::vector<chain::Call>& calls, chain::Options options = {});

/// The pool and the states of a call are not stored.
[[nodiscard]] chain::Call without_states(chain::Call call);
/// The same, but for its o.
[[nodiscard]] chain::Call with_o_alone(const chain::Call& call);

}  // namespace goldenrule::testing
