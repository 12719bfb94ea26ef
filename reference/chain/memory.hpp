// SPDX-License-Identifier: Apache-2.0
//
// What a judge remembers between calls.
#pragma once

#include <deque>
#include <map>
#include <utility>

#include "reference/chain/judge.hpp"
#include "reference/chain/layer_rule.hpp"
#include "reference/chain/request.hpp"

namespace goldenrule::chain {

/// Who wrote a slot last.
struct Writer {
  std::int64_t request = -1;  ///< -1: no request, but a row of padding or a kernel by mistake
  std::int64_t call = 0;
  std::int64_t owner = -1;  ///< the last request that did
};

/// What a call has said of the type of the pool.
struct PoolType {
  call::DType declared = call::DType::kF32;  ///< by its file
  std::int64_t call = 0;
  bool held = false;  ///< the call stores the pool
};

struct Memory {
  Options options;
  std::optional<Layout> layout;
  std::optional<std::int64_t> gap;    ///< the first call behind the last one whose tokens are lost
  std::optional<PoolType> pool_type;  ///< absent: no call has said it
  call::Record kind;                  ///< op and conventions of the first call; no tensors
  call::Dims dims;
  Requests requests;
  /// Requests that are counted, and how far each has ever come; -1: it has had no call.
  std::map<std::int64_t, std::int64_t> reached;
  std::map<std::int64_t, Writer> writers;  ///< of slots, the last ones
  /// Digests of states that calls have written for no request: the last kBeen, with the call.
  std::deque<std::pair<std::int64_t, std::uint64_t>> unowned;
  std::optional<call::Tensor> pool;                     ///< as the last call with states left it
  std::map<std::string, call::Tensor> parameters;       ///< of the layer, as the last call had them
  std::map<std::string, std::vector<LayerValue>> rule;  ///< of the layer, each value once
  std::shared_ptr<const call::Record> tokens;           ///< of the last call
  std::deque<std::pair<std::int64_t, std::int64_t>> anchors;  ///< request, position; oldest first
  std::map<std::string, contract::Contract> contracts;        ///< in use, by name
  Summary summary;

  std::uint64_t bytes = 0;  ///< that requests hold
  /// Of the tokens of calls that somebody remembers.
  std::shared_ptr<std::uint64_t> token_bytes = std::make_shared<std::uint64_t>(0);

  /// Throws Error where the ledgers of a call take more than Options::call_bytes.
  void refuse_beyond(const call::Record& record, const call::Dims& of_call) const;
  /// The tokens of a call, counted as long as somebody remembers them.
  [[nodiscard]] std::shared_ptr<const call::Record> hold(call::Record record) const;
  /// Remembers a request; its anchors are counted apart.
  void keep(std::int64_t id, Request request);
  /// Gives up what rests beyond the limit; requests of call `index` stay.
  void trim(std::int64_t index);

 private:
  /// Requests by their last calls, the longest unused first: call, request.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> by_last_call() const;
  void trim_trails();
};

}  // namespace goldenrule::chain
