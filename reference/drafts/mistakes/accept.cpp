// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in which drafts are accepted.
#include <array>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/operation.hpp"
#include "reference/drafts/mistakes/mistake.hpp"

namespace goldenrule::drafts {
namespace {

using call::AcceptRule;
using call::DraftKind;
using call::ZeroDraft;

void strict(const Work&, call::Record& record) { record.convention.accept_rule = AcceptRule::kLt; }
void lenient(const Work&, call::Record& record) { record.convention.accept_rule = AcceptRule::kLe; }
void zero_accepted(const Work&, call::Record& record) {
  record.convention.zero_draft = ZeroDraft::kAccept;
}
void zero_rejected(const Work&, call::Record& record) {
  record.convention.zero_draft = ZeroDraft::kReject;
}
void judged_by_q(const Work& work, call::Record& record) {
  const call::Tensor* q = record.find_input("draft_probs");
  const call::Dims& d = work.plan.dims;
  if (q == nullptr || q->shape() != call::Shape{d.rows, d.drafts, d.vocabulary}) return;
  record.convention.draft_kind = DraftKind::kSampled;
}
void q_ignored(const Work& work, call::Record& record) {
  if (!work.is_greedy()) record.convention.draft_kind = DraftKind::kOneHot;
}

void with_count(const Work& work, std::int64_t n, std::int64_t count, Outcome& outcome) {
  if (count == outcome.accepted) return;
  outcome = {.accepted = count, .token = work.decisions.token(n, count)};
}

void none(const Work& work, std::int64_t n, Outcome& outcome) { with_count(work, n, 0, outcome); }
void all(const Work& work, std::int64_t n, Outcome& outcome) {
  with_count(work, n, work.row(n).drafts, outcome);
}

void sum(const Work& work, std::int64_t n, Outcome& outcome) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < work.row(n).drafts; ++i) {
    count += work.decisions.acceptance(n, i).accepted ? 1 : 0;
  }
  with_count(work, n, count, outcome);
}

void shifted(const Work& work, std::int64_t n, Outcome& outcome) {
  const std::int64_t drafts = work.row(n).drafts, rows = work.target_positions();
  std::int64_t a = 0;
  while (a < drafts && a + 1 < rows && work.decisions.acceptance(n, a, a + 1).accepted) ++a;
  with_count(work, n, a, outcome);
}

// What the target says of each position; the rows of one request are `rows` long.
template <class Source>
void with_targets(const Work& work, call::Record& record, const Source& source) {
  const bool rejection = !work.is_greedy();
  const char* name = rejection ? "target_probs" : "target_tokens";
  const call::Tensor& given = work.call.inputs.at(name);
  call::Tensor& changed = record.inputs.at(name);
  const std::int64_t rows = work.target_positions();
  const std::int64_t length = rejection ? work.plan.dims.vocabulary : 1;
  for (std::int64_t n = 0; n < work.plan.dims.rows; ++n) {
    if (work.row(n).padded()) continue;
    for (std::int64_t i = 0; i < rows && i <= work.row(n).drafts; ++i) {
      const std::int64_t from = source(n, i, rows);
      for (std::int64_t x = 0; x < length; ++x) {
        changed.set((n * rows + i) * length + x, given[from * length + x]);
      }
    }
  }
}

void first_position(const Work& work, call::Record& record) {
  with_targets(work, record,
               [](std::int64_t n, std::int64_t, std::int64_t rows) { return n * rows; });
}
void first_request(const Work& work, call::Record& record) {
  with_targets(work, record, [&](std::int64_t n, std::int64_t i, std::int64_t rows) {
    const bool there = !work.row(0).padded() && i <= work.row(0).drafts;
    return there ? i : n * rows + i;
  });
}

constexpr std::array kStrict{calls::Meant{"accept_rule", "le", "lt"}};
constexpr std::array kLenient{calls::Meant{"accept_rule", "lt", "le"}};
constexpr std::array kZeroAccepted{calls::Meant{"zero_draft", "reject", "accept"}};
constexpr std::array kZeroRejected{calls::Meant{"zero_draft", "accept", "reject"}};
constexpr std::array kByQ{calls::Meant{"draft_kind", "one_hot", "sampled"}};
constexpr std::array kNoQ{calls::Meant{"draft_kind", "sampled", "one_hot"}};

// The first of those with the same outputs is the name, so that counts that look at nothing come
// first.
constexpr std::array kAcceptMistakes{
    mistake<none>("accept_none", "accepting",
                  "accepts no draft, and emits what belongs in the place of the first"),
    mistake<all>("accept_all", "accepting", "accepts every draft, whatever the target says"),
    mistake<sum>("accept_sum", "accepting",
                 "counts matches behind the first rejection: the sum of all, not the length of "
                 "the first run",
                 "vLLM #2658"),
    mistake<shifted>("accept_shifted", "accepting",
                     "compares a draft with what the target says behind it, not in its place"),
    mistake<strict>("accept_strict", "accepting", "accepts where u q < p, not where u q <= p",
                    "vLLM #54282", kStrict),
    mistake<lenient>("accept_lenient", "accepting", "accepts where u q <= p, not where u q < p", "",
                     kLenient),
    mistake<zero_accepted>("zero_draft_accepted", "accepting", "accepts a draft with q(d) = 0", "",
                           kZeroAccepted),
    mistake<zero_rejected>("zero_draft_rejected", "accepting", "rejects a draft with q(d) = 0", "",
                           kZeroRejected),
    mistake<judged_by_q>("argmax_judged_by_q", "accepting",
                         "judges a draft that argmax chose as if it were drawn from q",
                         "z-lab/dflash #77", kByQ),
    mistake<q_ignored>("q_ignored", "accepting",
                       "judges a draft that was drawn from q as if it were chosen: u <= p, and p "
                       "without d",
                       "", kNoQ),
    mistake<first_position>("rows_mixed", "accepting",
                            "takes what the target says of the first position for all of them"),
    mistake<first_request>("rows_mixed", "accepting",
                           "takes what the target says of the first request for all of them"),
};

}  // namespace

std::span<const calls::Mistake> accept_mistakes() { return kAcceptMistakes; }

}  // namespace goldenrule::drafts
