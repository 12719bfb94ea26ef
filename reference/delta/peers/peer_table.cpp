// SPDX-License-Identifier: Apache-2.0
//
// Every mistake is committed around the exact kernel; it is missed when it passes in all calls of
// the peer where it can be made. Beside it stands what this project's budgets miss on the very same
// calls, so that it shows what is due to the rule and what to the inputs.

#include "reference/delta/peers/peer_table.hpp"

#include <algorithm>

#include "reference/delta/peers/peer_rules.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::peers {
namespace {

constexpr std::uint64_t kPeerSeed = 1;

// One call of a peer with everything that it is judged by.
struct Bench {
  explicit Bench(const PeerCase& c)
      : peer_case(&c),
        contract(&contract::find_contract(c.contract)),
        slice(&delta::slice()),
        exact(verdict::exact_outputs(*slice, c.record)),
        right(calls::stored(c.record, *contract, exact)),
        expected(verdict::expect(*slice, c.record, *contract, scalar::Precision::kDouble)) {}

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
  const contract::Contract* contract;
  const verdict::Slice* slice;
  call::TensorMap exact, right;
  verdict::Expectations expected;
};

MissedMistakes try_peer(const Peer& peer) {
  std::vector<Bench> benches;
  for (const PeerCase& c : peer.cases) benches.emplace_back(c);
  MissedMistakes missed;
  for (const Bench& b : benches) {
    const bool emulates = !peer.shared.empty();  // no other kernel has its bits
    const auto honest =
        emulates ? b.right
                 : calls::stored(b.peer_case->record, *b.contract,
                                 b.slice->emulate(b.peer_case->record, *b.contract, kPeerSeed));
    if (!b.passes_peer(honest)) missed.refuses = b.contract->name;
  }
  for (const calls::Mistake& m : delta::slice().mistakes()) {
    bool possible = false;
    bool seen_by_peer = false;
    bool seen_here = false;
    bool inert = true;
    for (const Bench& b : benches) {
      const call::Record& record = b.peer_case->record;
      if (!m.applies(record)) continue;
      possible = true;
      const call::TensorMap outputs =
          calls::stored(record, *b.contract, m.commit(record, verdict::exact_kernel(*b.slice)));
      inert = inert && peer::same_bits(outputs, b.exact, b.right);
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

}  // namespace

std::vector<MissedMistakes> missed_by_peers(
    const std::vector<Peer>& peers, const std::function<void(std::size_t, const Peer&)>& begin) {
  std::vector<MissedMistakes> missed;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (begin) begin(i, peers[i]);
    missed.push_back(try_peer(peers[i]));
  }
  return missed;
}

}  // namespace goldenrule::peers
