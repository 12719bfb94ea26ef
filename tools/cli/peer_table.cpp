// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule mutate --peers`: which mistakes the rules of other projects let pass, as markdown.
// Every mistake is committed around the exact kernel; it is missed when it passes in all calls of
// the peer where it can be made. Beside it stands what this project's budgets miss on the very same
// calls, so that it shows what is due to the rule and what to the inputs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reference/mistakes/kernels.hpp"
#include "reference/oracle/evaluate.hpp"
#include "reference/verdict/verdict.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/peers.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

constexpr std::uint64_t kEmulationSeed = 1;

// One call of a peer with everything that it is judged by.
struct Bench {
  explicit Bench(const PeerCase& c)
      : peer_case(&c),
        contract(&bounds::find_contract(c.contract)),
        exact(mistakes::exact_kernel(c.record)),
        right(mistakes::stored(c.record, *contract, exact)),
        expected(oracle::evaluate(
            c.record, scalar::Precision::kDouble,
            {.certify = true, .contract = contract, .intermediate_states = true})) {}

  [[nodiscard]] bool passes_peer(const call::TensorMap& outputs) const {
    return peer_case->rule(outputs, exact, right);
  }
  [[nodiscard]] bool passes_here(const call::TensorMap& outputs) const {
    return std::ranges::all_of(outputs, [&](const auto& item) {
      const auto& [name, tensor] = item;
      return verdict::judge(name, tensor, expected.outputs.at(name), *contract).out_of_budget == 0;
    });
  }

  const PeerCase* peer_case;
  const bounds::Contract* contract;
  call::TensorMap exact, right;
  oracle::Evaluation expected;
};

struct Missed {
  std::vector<std::string_view> by_peer, here;
  std::vector<std::string_view> possible;
  std::int64_t inert = 0;  ///< of those: not a stored bit differs, whoever looks
  std::string refuses;     ///< the contract of an emulated right kernel that the rule refuses
};

bool same_bits(const call::TensorMap& a, const call::TensorMap& b) {
  return std::ranges::all_of(a, [&](const auto& item) {
    return std::ranges::equal(item.second.bytes(), b.at(item.first).bytes());
  });
}

Missed try_peer(const Peer& peer) {
  std::vector<Bench> benches;
  for (const PeerCase& c : peer.cases) benches.emplace_back(c);
  Missed missed;
  for (const Bench& b : benches) {
    const bool emulates = !peer.shared.empty();  // no other kernel has its bits
    const auto honest =
        emulates ? b.right
                 : mistakes::stored(
                       b.peer_case->record, *b.contract,
                       mistakes::emulated_kernel(*b.contract, kEmulationSeed)(b.peer_case->record));
    if (!b.passes_peer(honest)) missed.refuses = b.contract->name;
  }
  for (const mistakes::Mistake& m : mistakes::table()) {
    bool possible = false;
    bool seen_by_peer = false;
    bool seen_here = false;
    bool inert = true;
    for (const Bench& b : benches) {
      const call::Record& record = b.peer_case->record;
      if (!m.applies(record)) continue;
      possible = true;
      const call::TensorMap outputs =
          mistakes::stored(record, *b.contract, m.commit(record, mistakes::exact_kernel));
      inert = inert && same_bits(outputs, b.right);
      seen_by_peer = seen_by_peer || !b.passes_peer(outputs);
      seen_here = seen_here || !b.passes_here(outputs);
    }
    if (!possible) continue;
    if (std::ranges::find(peer.shared, m.name) != peer.shared.end()) seen_by_peer = false;
    missed.possible.push_back(m.name);
    missed.inert += inert ? 1 : 0;
    if (!seen_by_peer) missed.by_peer.push_back(m.name);
    if (!seen_here) missed.here.push_back(m.name);
  }
  return missed;
}

// Rows of one name are ways to make one mistake: the name is said once.
std::string listed(std::vector<std::string_view> names) {
  std::set<std::string_view> said;
  std::erase_if(names, [&](std::string_view name) { return !said.insert(name).second; });
  return names.empty() ? "none" : fmt::format("`{}`", fmt::join(names, "`, `"));
}

}  // namespace

int mutate_peers() {
  const std::vector<Peer> all = peers();
  std::vector<Missed> results;
  Progress progress(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    progress.show(i, all[i].name);
    results.push_back(try_peer(all[i]));
  }
  progress.clear();
  fmt::print(
      "| Test | Passes if | Inputs | Mistakes possible | Without effect | Missed | Missed by a "
      "budget |\n"
      "|---|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    fmt::print("| {} | {} | {} | {} | {} | {} | {} |\n", all[i].name, all[i].rule, all[i].inputs,
               results[i].possible.size(), results[i].inert, results[i].by_peer.size(),
               results[i].here.size());
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    fmt::print("\n**{}** misses {}. A budget on the same inputs misses {}.", all[i].name,
               listed(results[i].by_peer), listed(results[i].here));
    if (!results[i].refuses.empty()) {
      fmt::print(" It refuses the emulated right kernel of `{}`.", results[i].refuses);
    }
    fmt::print("\n");
  }
  return 0;
}

}  // namespace goldenrule::tools
