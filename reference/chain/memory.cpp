// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/memory.hpp"

#include <algorithm>
#include <string>

#include "fixtures/call/error.hpp"
#include "reference/chain/trail.hpp"

namespace goldenrule::chain {
namespace {

constexpr std::uint64_t kTrailShare = 4;  // of the memory, for tokens of earlier calls

std::uint64_t size_of(const call::Record& tokens) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tokens.inputs) bytes += tensor.bytes().size();
  return bytes;
}

// With its share of the tokens of its last call, which all rows of that call hold together.
std::uint64_t bytes_of(const Layout& layout, const Request& request) {
  constexpr std::uint64_t kSmall = 1024;  // what is not a state
  const auto ledgers = static_cast<std::uint64_t>(request.before != nullptr) +
                       static_cast<std::uint64_t>(request.now != nullptr);
  const std::uint64_t each = (1 + static_cast<std::uint64_t>(layout.runs)) * layout.size();
  std::uint64_t tokens = 0;
  if (request.tokens != nullptr && request.counts != nullptr && !request.counts->empty()) {
    tokens = size_of(*request.tokens) / request.counts->size();
  }
  return kSmall + request.been.size() * sizeof(request.been.front()) + tokens +
         bytes_of_trail(layout, request) +
         (ledgers * each + request.left.size() * layout.size()) * sizeof(double);
}

// Trees are computed path by path.
std::int64_t tokens_on_paths(const call::Record& record, const call::Dims& dims) {
  std::int64_t tokens = 0;
  for (const auto& parents : call::parents_of_rows(record, call::token_bounds(record, dims))) {
    tokens += call::tokens_on_paths(parents);
  }
  return tokens;
}

// What the ledgers of a call take while it is judged.
double bytes_of_call(const Layout& layout, const call::Record& record, const call::Dims& dims) {
  const auto count = [](std::int64_t n) { return static_cast<double>(n); };
  const double state = count(layout.HV) * count(layout.K) * count(layout.V) * sizeof(double);
  const double ledger = (1.0 + layout.runs) * state;
  // The ledger with which each row begins and the one with which it goes on; tiles of both.
  double bytes = 2.0 * count(dims.rows) * ledger;
  if (has_states(record) || record.outputs.contains("o") || record.mode == call::Mode::kPrefill ||
      call::has_tree(record)) {
    // A Step has, of each state that the call leaves: the exact one with its radius and grant,
    // the noise moved to it, and what is stored; beside the pools in which they start.
    const double left =
        count(dims.rows) *
            (record.mode == call::Mode::kMtp ? 1.0 + count(std::max(dims.T, dims.steps)) : 1.0) +
        count(dims.checkpoints) + count(tokens_on_paths(record, dims));
    bytes += 2.0 * count(dims.rows) * state + left * (4.0 + layout.runs) * state;
  }
  return bytes;
}

}  // namespace

void Memory::refuse_beyond(const call::Record& record, const call::Dims& of_call) const {
  const double needed = bytes_of_call(*layout, record, of_call);
  if (needed <= options.call_bytes) return;
  const auto text = [](double x) { return std::to_string(static_cast<std::uint64_t>(x)); };
  throw Error(ErrorKind::kUnsafe, "",
              "a call whose ledgers take at most " + text(options.call_bytes) + " bytes (--memory)",
              needed < 1e18 ? text(needed) + " bytes" : "more than 10^18 bytes");
}

std::shared_ptr<const call::Record> Memory::hold(call::Record record) const {
  const std::uint64_t size = size_of(record);
  *token_bytes += size;
  auto held = std::make_unique<const call::Record>(std::move(record));
  return {held.release(), [total = token_bytes, size](const call::Record* held_record) {
            *total -= size;
            std::default_delete<const call::Record>()(held_record);
          }};
}

void Memory::keep(std::int64_t id, Request request) {
  request.bytes = bytes_of(*layout, request);
  bytes += request.bytes;
  const auto old = requests.find(id);
  if (old != requests.end()) bytes -= old->second.bytes;
  requests.insert_or_assign(id, std::move(request));
}

std::vector<std::pair<std::int64_t, std::int64_t>> Memory::by_last_call() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> oldest;
  for (const auto& [id, request] : requests) oldest.emplace_back(request.call, id);
  std::ranges::sort(oldest);
  return oldest;
}

// A state that nobody has stored can then be computed no more from before that call.
void Memory::trim_trails() {
  const std::uint64_t most = options.most_bytes / kTrailShare;
  if (*token_bytes <= most) return;
  for (const auto& [call, id] : by_last_call()) {
    if (*token_bytes <= most - most / 8) return;
    Request& request = requests.at(id);
    bytes -= request.bytes;
    request.bytes -= bytes_of_trail(*layout, request);
    bytes += request.bytes;
    request.trail.clear();
  }
}

// Where there is too much, an eighth more than that is given up, so that a call in which nothing is
// costs nothing, whatever rests.
void Memory::trim(std::int64_t index) {
  trim_trails();
  const std::uint64_t anchor = (2 + static_cast<std::uint64_t>(layout->runs)) * layout->size() * 8;
  while (bytes + anchors.size() * anchor > options.most_bytes && !anchors.empty()) {
    const auto [id, position] = anchors.front();
    anchors.pop_front();
    const auto found = requests.find(id);
    if (found != requests.end()) found->second.anchors.erase(position);
    ++summary.forgotten;
  }
  if (bytes <= options.most_bytes) return;
  for (const auto& [call, id] : by_last_call()) {
    if (call == index || bytes <= options.most_bytes - options.most_bytes / 8) return;
    const auto found = requests.find(id);
    bytes -= found->second.bytes;
    requests.erase(found);
    ++summary.forgotten;
  }
}

}  // namespace goldenrule::chain
