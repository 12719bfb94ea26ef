// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "reference/drafts/mistakes/mistake.hpp"

namespace goldenrule::drafts {
namespace {

using call::Integers;

std::vector<Outcome> right_outcomes(const Work& work) {
  std::vector<Outcome> outcomes(work.plan.rows.size());
  for (std::size_t n = 0; n < outcomes.size(); ++n) {
    if (work.plan.rows[n].padded()) continue;
    outcomes[n] = work.decisions.outcome(static_cast<std::int64_t>(n));
  }
  return outcomes;
}

bool differ(const Returned& a, const Returned& b) {
  return a.tokens != b.tokens || a.keep != b.keep || a.accepted != b.accepted ||
         a.committed != b.committed || a.target_len != b.target_len || a.draft_len != b.draft_len ||
         a.next_anchor != b.next_anchor || a.release_from != b.release_from;
}

// The greedy call that has these outcomes.
call::Record plain_call(const Work& work, const std::vector<Outcome>& outcomes) {
  call::Record plain = work.call;
  plain.mode = call::Mode::kGreedy;
  plain.outputs.clear();
  for (const char* name : {"target_probs", "draft_probs", "uniforms", "recover_uniforms",
                           "recover_noise", "bonus_tokens"}) {
    plain.inputs.erase(name);
  }
  const std::int64_t width = work.plan.dims.drafts + 1;
  Integers targets(static_cast<std::size_t>(work.plan.dims.rows * width), 0);
  Integers lens;
  for (std::size_t n = 0; n < outcomes.size(); ++n) {
    const auto row = static_cast<std::int64_t>(n);
    const std::int64_t a = outcomes[n].accepted;
    lens.push_back(a);
    if (work.row(row).padded()) continue;
    for (std::int64_t i = 0; i < a; ++i) {
      targets[static_cast<std::size_t>(row * width + i)] = work.decisions.draft(row, i);
    }
    targets[static_cast<std::size_t>(row * width + a)] = outcomes[n].token.value_or(0);
  }
  plain.inputs["draft_lens"] = call::integer_tensor(lens);
  plain.inputs["target_tokens"] = call::integer_tensor(targets, {work.plan.dims.rows, width});
  return plain;
}

std::vector<Outcome> changed_outcomes(Misdecided change, const Work& work) {
  std::vector<Outcome> outcomes = right_outcomes(work);
  for (std::size_t n = 0; n < outcomes.size(); ++n) {
    const auto row = static_cast<std::int64_t>(n);
    if (!work.row(row).padded()) change(work, row, outcomes[n]);
  }
  return outcomes;
}

// Row n of the outputs of a kernel.
void copy_row(std::int64_t n, std::int64_t width, const call::TensorMap& from, Returned& to) {
  const auto value = [&](const char* name, std::int64_t i) { return integer_of(from.at(name)[i]); };
  Returned::for_each(to, [&](const char* name, auto& field) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(field)>, Returned::Value>) {
      field = value(name, n);
    } else {
      for (std::int64_t i = 0; i < width; ++i) field.push_back(value(name, n * width + i));
    }
  });
}

}  // namespace

Work::Work(const call::Record& record)
    : call(record), plan(make_plan(record)), decisions(record, plan) {}

std::int64_t Work::target_positions() const {
  return is_greedy() ? plan.dims.drafts + 1 : plan.dims.target_rows;
}

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> kAll = [] {
    std::vector<calls::Mistake> all;
    for (const auto part : {accept_mistakes(), token_mistakes(), commit_mistakes()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return kAll;
}

bool changes(Misread change, const call::Record& record) {
  const Work work(record);
  call::Record other = record;
  change(work, other);
  try {
    const Work changed(other);
    const std::vector<Outcome> right = right_outcomes(work);
    const std::vector<Outcome> wrong = right_outcomes(changed);
    for (std::size_t n = 0; n < right.size(); ++n) {
      const auto row = static_cast<std::int64_t>(n);
      if (differ(work.decisions.returned(row, right[n]),
                 changed.decisions.returned(row, wrong[n]))) {
        return true;
      }
    }
  } catch (const Error&) {  // the changed call is none
  }
  return false;
}

bool changes(Misdecided change, const call::Record& record) {
  const Work work(record);
  return changed_outcomes(change, work) != right_outcomes(work);
}

bool changes(Misreturned change, const call::Record& record) {
  const Work work(record);
  const std::vector<Outcome> outcomes = right_outcomes(work);
  for (std::size_t n = 0; n < outcomes.size(); ++n) {
    const auto row = static_cast<std::int64_t>(n);
    const Returned right = work.decisions.returned(row, outcomes[n]);
    Returned wrong = right;
    change(work, row, wrong);
    if (differ(right, wrong)) return true;
  }
  return false;
}

call::TensorMap commit(Misread change, const call::Record& record, const calls::Kernel& kernel) {
  call::Record other = record;
  other.outputs.clear();
  change(Work(record), other);
  return kernel(other);
}

call::TensorMap commit(Misdecided change, const call::Record& record, const calls::Kernel& kernel) {
  const Work work(record);
  return kernel(plain_call(work, changed_outcomes(change, work)));
}

call::TensorMap commit(Misreturned change, const call::Record& record,
                       const calls::Kernel& kernel) {
  const Work work(record);
  const std::int64_t width = work.plan.dims.drafts + 1;
  call::TensorMap outputs = kernel(record);
  for (std::int64_t n = 0; n < work.plan.dims.rows; ++n) {
    Returned row;
    copy_row(n, width, outputs, row);
    change(work, n, row);
    store(row, n, outputs);
  }
  return outputs;
}

}  // namespace goldenrule::drafts
