// SPDX-License-Identifier: Apache-2.0
//
// Length: one search, whose candidates share what is known of the request.
#include "reference/chain/naming.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "fixtures/call/take.hpp"
#include "fixtures/call/text.hpp"

namespace goldenrule::chain {
namespace {

constexpr std::int64_t kSearched = 512;  // positions of one call
constexpr std::int64_t kHeads = 64;      // whose order is searched
constexpr double kLeastFactor = 1e-6;    // by which a state may have been multiplied

bool matches(const Block& x, const Allowed& candidate) {
  return !candidate.vacuous && fit(x, candidate).passes();
}

// The same tokens with beta 0: they decay a state and write nothing.
call::Record without_writes(call::Record tokens) {
  tokens.inputs.erase("b");
  const call::Tensor& v = tokens.inputs.at("v");
  call::Shape shape = v.shape();
  shape.pop_back();
  tokens.inputs["beta"] = call::Tensor(call::DType::kF32, std::move(shape));
  tokens.convention.beta = call::BetaForm::kDirect;
  return tokens;
}

std::string state_text(const Request& request, std::int64_t after) {
  const std::string of = " of the " + call::numbered(request.given, "token") + " of call " +
                         std::to_string(request.call);
  if (request.parents.empty()) return "it is the state after " + std::to_string(after) + of;
  if (after == 0) return "it is the state after none" + of;
  return "it is the state of token " + std::to_string(after - 1) + of + ", at depth " +
         std::to_string(call::depth_of(request.parents, after)) + " of the tree" +
         (request.kept.value_or(0) > 0
              ? ", where token " + std::to_string(*request.kept - 1) + " was kept"
              : "");
}

class Search {
 public:
  Search(const verdict::Slice& slice, const Layout& layout, const Requests& requests,
         const Suspect& suspect)
      : slice_(slice), layout_(layout), requests_(requests), s_(suspect) {
    const auto found = requests.find(suspect.request);
    if (found != requests.end()) own_ = &found->second;
  }

  Name run() {
    for (const auto look :
         {&Search::unwritten, &Search::stale, &Search::own_bits, &Search::own_positions,
          &Search::planes, &Search::anchors, &Search::heads, &Search::rewritten, &Search::part,
          &Search::twice, &Search::by_this_call, &Search::other_keys, &Search::others}) {
      if (std::optional<Name> name = (this->*look)()) return *std::move(name);
    }
    return {};
  }

 private:
  std::optional<Name> unwritten() {
    if (s_.after && s_.started != nullptr && *s_.x == *s_.started) {
      return Name{Mistake::kNotWritten, "it is what the call started from", {}};
    }
    if (!s_.fresh && is_zero(*s_.x)) return Name{Mistake::kNotWritten, "it is zero", {}};
    return std::nullopt;
  }

  std::optional<Name> stale() {
    if (!s_.fresh || s_.slot_held == nullptr || *s_.x != *s_.slot_held) return std::nullopt;
    return Name{Mistake::kStaleSlot,
                s_.slot_owner < 0
                    ? std::string("it is what the slot held before")
                    : "it is what request " + std::to_string(s_.slot_owner) + " left in the slot",
                {}};
  }

  [[nodiscard]] Name rolled(std::int64_t count) const {
    if (!own_->mtp) {
      return {Mistake::kOffBoundary, state_text(*own_, count), {}};
    }
    return {Mistake::kWrongRollback, state_text(*own_, count), count};
  }

  std::optional<Name> own_bits() {
    if (own_ == nullptr || s_.after) return std::nullopt;
    for (const auto& [count, stored] : own_->left) {
      if (own_->kept == count || stored.values != *s_.x) continue;
      if (count == 0 && !own_->mtp) return before_call();
      return rolled(count);
    }
    return std::nullopt;
  }

  // What was to be restored is not where that call was to write.
  [[nodiscard]] Name before_call() const {
    return {s_.restored ? Mistake::kOffBoundary : Mistake::kNotWritten,
            "it is the state from before call " + std::to_string(own_->call),
            {}};
  }

  // States on the way through the last call: of all positions, as many as can be searched, those
  // next to the end first.
  std::optional<Name> own_positions() {
    if (own_ == nullptr || !own_->before || own_->tokens == nullptr) return std::nullopt;
    std::vector<std::int64_t> offsets;
    const std::int64_t first = std::max<std::int64_t>(1, own_->given - kSearched);
    for (std::int64_t t = first; t <= own_->given; ++t) offsets.push_back(t);
    if (matches(*s_.x, allowed_now(layout_, *own_->contract, *own_->before))) {
      if (own_->mtp) return rolled(0);
      return before_call();
    }
    if (own_->given <= 1) return std::nullopt;
    const call::Record tokens = one_row(*own_->tokens, own_->row, offsets);
    const Step step(slice_, *own_->contract, layout_, tokens, {&own_->before, 1});
    for (const std::int64_t count : step.known(0)) {
      if (own_->kept == count || !matches(*s_.x, step.allowed(0, count))) continue;
      return rolled(count);
    }
    return std::nullopt;
  }

  // Of the MTP call before its last call, to which a server may go back.
  std::optional<Name> planes() {
    if (own_ == nullptr || !own_->planes) return std::nullopt;
    const Way& way = *own_->planes;
    const call::Record tokens = one_row(*way.tokens, way.row);
    const Step step(slice_, *way.contract, layout_, tokens, {&way.before, 1});
    for (const std::int64_t count : step.known(0)) {
      const bool right =
          way.position(count) == s_.position && call::leads_to(way.parents, count, way.kept);
      if (right || !matches(*s_.x, step.allowed(0, count))) continue;
      return Name{Mistake::kWrongRollback,
                  "it is the state of this request at position " +
                      std::to_string(way.position(count)) + ", in its last MTP call",
                  {}};
    }
    return std::nullopt;
  }

  std::optional<Name> anchors() {
    if (own_ == nullptr) return std::nullopt;
    const std::uint64_t here = digest_of(*s_.x);
    for (const auto& [position, digest] : own_->been) {
      if (s_.fresh || position == s_.position || digest != here) continue;
      return Name{Mistake::kOffBoundary,
                  "it is the state of this request at position " + std::to_string(position),
                  {}};
    }
    for (const auto& [position, anchor] : own_->anchors) {
      if (position == s_.position || own_->contract == nullptr) continue;
      if (!matches(*s_.x, allowed_now(layout_, *own_->contract, *anchor.ledger))) continue;
      return Name{Mistake::kOffBoundary,
                  "it is the state of this request at position " + std::to_string(position),
                  {}};
    }
    return std::nullopt;
  }

  // What it should be.
  [[nodiscard]] std::optional<Allowed> right() const {
    if (own_ == nullptr || own_->contract == nullptr || s_.after) return std::nullopt;
    const auto anchor = own_->anchors.find(s_.position);
    const bool kept = anchor != own_->anchors.end();
    if (!kept && (!own_->now || own_->position() != s_.position)) return std::nullopt;
    Allowed allowed =
        allowed_now(layout_, *own_->contract, kept ? *anchor->second.ledger : *own_->now);
    if (allowed.vacuous) return std::nullopt;
    return allowed;
  }

  // Each value head is one of the right state, and not its own in all.
  std::optional<Name> heads() {
    const std::optional<Allowed> allowed = right();
    if (!allowed || layout_.HV > kHeads || fit(*s_.x, *allowed).passes()) return std::nullopt;
    const auto head = static_cast<std::ptrdiff_t>(layout_.size()) / layout_.HV;
    std::vector<std::int64_t> from;
    for (std::int64_t h = 0; h < layout_.HV; ++h) {
      std::int64_t source = 0;
      while (source < layout_.HV && !is_head(*allowed, h, source, head)) ++source;
      if (source == layout_.HV) return std::nullopt;
      from.push_back(source);
    }
    std::string text = "its value heads are those of the right state, in the order";
    for (const std::int64_t source : from) text += " " + std::to_string(source);
    return Name{Mistake::kHeadsMoved, std::move(text), {}};
  }

  [[nodiscard]] bool is_head(const Allowed& allowed, std::int64_t here, std::int64_t source,
                             std::ptrdiff_t size) const {
    for (std::ptrdiff_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(source * size + i);
      const double x = (*s_.x)[static_cast<std::size_t>(here * size + i)];
      if (!(std::fabs(x - allowed.golden[at]) <= static_cast<double>(allowed.budget[at])))
        return false;
    }
    return true;
  }

  // The right state with its axes exchanged, or times one number.
  std::optional<Name> rewritten() {
    const std::optional<Allowed> allowed = right();
    if (!allowed || fit(*s_.x, *allowed).passes()) return std::nullopt;
    if (layout_.K == layout_.V) {
      Block turned(layout_.size());
      for_each_element(layout_, [&](std::size_t i, std::int64_t h, std::int64_t k, auto column) {
        const auto v = static_cast<std::int64_t>(column) - h * layout_.V;
        turned[i] = (*s_.x)[layout_.at(0, h, v, k)];
      });
      if (fit(turned, *allowed).passes()) {
        return Name{Mistake::kAxesExchanged, "it is the right state, keys for values", {}};
      }
    }
    double product = 0.0;
    double square = 0.0;
    for (std::size_t i = 0; i < layout_.size(); ++i) {
      product += (*s_.x)[i] * allowed->golden[i];
      square += allowed->golden[i] * allowed->golden[i];
    }
    const double factor = product / square;
    if (!std::isfinite(factor) || std::fabs(factor) < kLeastFactor) return std::nullopt;
    Block right = *s_.x;
    for (double& x : right) x /= factor;
    if (!fit(right, *allowed).passes()) return std::nullopt;
    return Name{Mistake::kScaled, "it is the right state times " + std::to_string(factor), {}};
  }

  // The right state at first, then what lay in the slot: what the last call left there, or a state
  // that some request had, where the server has moved one into it since.
  std::optional<Name> part() {
    const std::optional<Allowed> allowed = right();
    if (!allowed) return std::nullopt;
    if (s_.slot_held != nullptr) {
      if (auto name = part_of(*allowed, *s_.slot_held, "what the slot held")) return name;
    }
    for (const auto& [id, request] : requests_) {
      for (const auto& [count, stored] : request.left) {
        const std::string what = "those of a state of request " + std::to_string(id);
        if (auto name = part_of(*allowed, stored.values, what)) return name;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Name> part_of(const Allowed& allowed, const Block& rest,
                                            const std::string& what) const {
    std::size_t copied = layout_.size();
    while (copied > 0 && (*s_.x)[copied - 1] == rest[copied - 1]) --copied;
    if (copied == 0 || copied == layout_.size()) return std::nullopt;
    Block begun = *s_.x;  // with the rest as it should be
    std::copy(allowed.golden.begin() + static_cast<std::ptrdiff_t>(copied), allowed.golden.end(),
              begun.begin() + static_cast<std::ptrdiff_t>(copied));
    if (!fit(begun, allowed).passes()) return std::nullopt;
    return Name{Mistake::kCopiedInPart,
                "its first " + std::to_string(copied) + " of " +
                    call::numbered(layout_.size(), "element") + " are right, the others are " +
                    what,
                {}};
  }

  // The tokens of its last call, or those of its last MTP call before that.
  std::optional<Name> twice() {
    if (own_ == nullptr || !own_->now) return std::nullopt;
    for (const std::optional<Way>& way : {own_->way(), own_->planes}) {
      if (!way || way->kept == 0) continue;
      const call::Record tokens = one_row(*way->tokens, way->row);
      const Step step(slice_, *way->contract, layout_, tokens, {&own_->now, 1});
      if (!matches(*s_.x, step.allowed(0, way->kept))) continue;
      return Name{Mistake::kReplayedTwice,
                  "its tokens from position " + std::to_string(way->base) + " to " +
                      std::to_string(way->position(way->kept)) + " are applied to it a second time",
                  {}};
    }
    return std::nullopt;
  }

  // The tokens of the call are applied already, or the first of them has decayed the state.
  std::optional<Name> by_this_call() {
    if (own_ == nullptr || !own_->now || s_.tokens == nullptr || s_.fresh ||
        own_->position() != s_.position) {
      return std::nullopt;
    }
    const std::array<std::int64_t, 1> first{1};
    const call::Record tokens = one_row(*s_.tokens, s_.row, first);
    const auto made_by = [&](const call::Record& record) {
      const Step step(slice_, *own_->contract, layout_, record, {&own_->now, 1});
      return std::ranges::any_of(step.known(0), [&](std::int64_t after) {
        return matches(*s_.x, step.allowed(0, after));
      });
    };
    if (made_by(tokens)) {
      return Name{Mistake::kReplayedTwice, "tokens of this call are applied to it already", {}};
    }
    if (made_by(without_writes(tokens))) {
      return Name{Mistake::kDecayedAgain, "tokens of this call have decayed it already", {}};
    }
    return std::nullopt;
  }

  // A buffer of normalised keys is filled for every call. Where nobody waits for it, a call reads
  // what the one before it has left there, in the same rows.
  std::optional<Name> other_keys() {
    if (!s_.after || s_.earlier == nullptr || own_ == nullptr || !own_->before ||
        own_->tokens == nullptr || own_->tokens->mode != s_.earlier->mode ||
        own_->tokens->mode == call::Mode::kPrefill) {
      return std::nullopt;
    }
    const call::Tensor& keys = s_.earlier->inputs.at("k");
    call::Record tokens = one_row(*own_->tokens, own_->row);
    call::Tensor& k = tokens.inputs.at("k");
    if (own_->row >= keys.shape().front()) return std::nullopt;
    const call::Tensor other = call::take(keys, 0, std::vector<std::int64_t>{own_->row});
    if (other.shape() != k.shape() || std::ranges::equal(other.bytes(), k.bytes())) {
      return std::nullopt;
    }
    k = other;
    const Step step(slice_, *own_->contract, layout_, tokens, {&own_->before, 1});
    if (*s_.after < 1 || !matches(*s_.x, step.allowed(0, *s_.after))) return std::nullopt;
    return Name{Mistake::kOtherKeys,
                "it is what the tokens of the call make with the keys of row " +
                    std::to_string(own_->row) + " of the call before",
                {}};
  }

  std::optional<Name> others() {
    const std::uint64_t here = digest_of(*s_.x);
    for (const Requests::value_type& request : requests_) {
      const std::int64_t id = request.first;
      const Request& other = request.second;
      if (id == s_.request) continue;
      const bool been =
          std::ranges::any_of(other.been, [&](const auto& entry) { return entry.second == here; });
      const bool bits = been || std::ranges::any_of(other.left, [&](const auto& entry) {
                          return entry.second.values == *s_.x;
                        });
      const bool near = [&] {
        if (other.contract == nullptr) return false;
        for (const Known* state : {&other.now, &other.before}) {
          if (*state && !is_zero((*state)->state) &&
              matches(*s_.x, allowed_now(layout_, *other.contract, **state))) {
            return true;
          }
        }
        return false;
      }();
      if (!bits && !near) continue;
      if (s_.fresh && id == s_.slot_owner) {
        return Name{Mistake::kStaleSlot,
                    "it is what request " + std::to_string(id) + " left in the slot",
                    {}};
      }
      return Name{Mistake::kOtherRequest, "it is the state of request " + std::to_string(id), {}};
    }
    return std::nullopt;
  }

  const verdict::Slice& slice_;
  const Layout& layout_;
  const Requests& requests_;
  const Suspect& s_;
  const Request* own_ = nullptr;
};

}  // namespace

Name name_of(const verdict::Slice& slice, const Layout& layout, const Requests& requests,
             const Suspect& suspect) {
  return Search(slice, layout, requests, suspect).run();
}

}  // namespace goldenrule::chain
