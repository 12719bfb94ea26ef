// SPDX-License-Identifier: Apache-2.0
//
// Known mistakes of servers: which state belongs to whom. One call cannot show them, because every
// call is right about what it was given. A mistake is a change of a step of the schedule.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string_view>

#include "reference/chain/finding.hpp"
#include "reference/serving/scheduler.hpp"

namespace goldenrule::serving {

/// What a mistake may look back at.
struct Past {
  const cases::Scenario* scenario = nullptr;
  const Scheduler* scheduler = nullptr;
  Step prefill = {};  ///< the last one, as it was meant
  Step last = {};     ///< of any mode, as it was meant
  /// By the number of rows: what a graph was captured with.
  std::map<std::size_t, Step> first_decode = {};
  std::map<std::int64_t, std::int64_t> owner =
      {};  ///< by slot: the request that it was last meant for
  std::map<std::int64_t, Stretch> replayed =
      {};  ///< by request: what was applied after its MTP call

  /// By request: its row in its last call, where that was an MTP call.
  std::map<std::int64_t, Row> mtp_rows = {};

  std::map<std::int64_t, std::int64_t> reached = {};  ///< by request: its furthest position

  /// By request: which state its last MTP call kept, and the one before that.
  std::map<std::int64_t, std::int64_t> kept = {}, kept_before = {};

  /// What the step means to do, before any mistake; after the mistake of the step was made.
  void add(const Step& meant);
};

struct ServerMistake {
  std::string_view name;      ///< stable, used in scenarios, reports and scripts
  std::string_view meaning;   ///< one sentence to the author: what the server does
  std::string_view reported;  ///< where it was made in public: "vLLM #39273, #40738"
  /// What the judge of chains calls it; kNone: it has no name for it.
  chain::Mistake named;
  /// Makes the mistake where the step has an occasion for it; false where it has none.
  bool (*change)(Step& step, const Past& past);
  /// Names that are as good where the states are the same ones: one token short of two is one.
  std::array<chain::Mistake, 4> also = {};
  /// It strikes within a call, which is then refused by itself as well.
  bool in_call = false;
  /// The data cannot show it: the judge counts what it has taken for right, and strict judgement
  /// refuses that.
  bool strict = false;
};

[[nodiscard]] std::span<const ServerMistake> server_mistakes();

/// nullptr for the empty name. Throws Error(kArgument) for an unknown one.
[[nodiscard]] const ServerMistake* find_server_mistake(std::string_view name);

}  // namespace goldenrule::serving
