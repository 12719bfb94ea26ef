// SPDX-License-Identifier: Apache-2.0
//
// The tokens of all requests of a scenario, and calls made of them: one record of a case
// (fixtures/cases) has them all, so that a token has the same numbers in whatever call it comes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/call/token_tree.hpp"
#include "reference/serving/scheduler.hpp"

namespace goldenrule::serving {

// One number for each row.
inline call::Tensor integers(std::int64_t columns, const std::vector<std::int64_t>& values) {
  call::Shape shape{std::ssize(values) / columns};
  if (columns > 1) shape.push_back(columns);
  return call::integer_tensor(values, std::move(shape));
}
inline call::Tensor bounds(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> bounds{0};
  for (const std::int64_t count : counts) bounds.push_back(bounds.back() + count);
  return integers(1, bounds);
}
template <class F>
std::vector<std::int64_t> of_rows(const std::vector<Row>& rows, F&& f) {
  std::vector<std::int64_t> values;
  values.reserve(rows.size());
  for (const Row& row : rows) values.push_back(static_cast<std::int64_t>(f(row)));
  return values;
}

// The kernels of a server make the same choices in all of its calls.
inline constexpr std::uint64_t kKernelSeed = 1;

// What the server says of the rows of a call.
inline void add_ids(const std::vector<Row>& rows, call::Record& record) {
  record.inputs["request_ids"] =
      integers(1, of_rows(rows, [](const Row& r) { return said_of(r).request; }));
  record.inputs["positions"] =
      integers(1, of_rows(rows, [](const Row& r) { return said_of(r).position; }));
  record.inputs["restored_from"] =
      integers(1, of_rows(rows, [](const Row& r) { return r.restored_from; }));
}

// The tokens of all requests: sequence r those of request r, after them what was drafted and
// rejected.
class Tokens {
 public:
  Tokens(const cases::Scenario& scenario, const std::vector<Request>& requests)
      : requests_(requests) {
    std::vector<std::int64_t> lengths;
    lengths.reserve(2 * requests.size());
    for (const Request& r : requests) lengths.push_back(r.total);
    for (const Request& r : requests) lengths.push_back(r.total);
    for (const std::int64_t length : lengths) first_.push_back(first_.back() + length);
    record_ = cases::make_record(cases::token_case(scenario, lengths));
    dims_ = call::validate(record_);
  }

  [[nodiscard]] std::vector<std::int64_t> of(const Row& row) const {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(row.count), 0);
    if (row.request < 0) return tokens;
    for (std::int64_t t = 0; t < row.count; ++t) {
      const bool own = row.parents.empty() && t < row.accepted;
      tokens[static_cast<std::size_t>(t)] = place(row.request, row.position + t, own);
    }
    if (row.parents.empty()) return tokens;
    std::int64_t position = row.position;
    for (const std::int64_t t : call::path_to(row.parents, row.kept)) {
      tokens[static_cast<std::size_t>(t)] = place(row.request, position++, true);
    }
    return tokens;
  }

  // So many tokens as one row that goes on from a state.
  [[nodiscard]] call::Record call_of(const Stretch& stretch, bool decay_only) const {
    Row row;
    row.request = stretch.request;
    row.position = stretch.begin;
    row.count = stretch.count;
    row.accepted = stretch.drafts ? 0 : stretch.count;
    call::Record record = call_of(call::Mode::kMtp, {row});
    if (!decay_only) return record;
    constexpr double kShut = -1e4;  // a sigmoid of 0
    const bool direct = record.convention.beta == call::BetaForm::kDirect;
    call::Tensor& beta = record.inputs.at(direct ? "beta" : "b");
    for (std::int64_t i = 0; i < beta.size(); ++i) beta.set(i, direct ? 0.0 : kShut);
    return record;
  }

  // A call of these rows without slots and states.
  [[nodiscard]] call::Record call_of(call::Mode mode, const std::vector<Row>& rows) const {
    call::Record record;
    record.op = record_.op;
    record.mode = mode;
    record.convention = record_.convention;
    std::vector<std::int64_t> tokens;
    for (const Row& row : rows) {
      const std::vector<std::int64_t> more = of(row);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    call::for_each_input(
        record_, dims_, [&](const auto& input, const auto&, const call::Tensor& given) {
          const std::string name(input.name);
          if (input.is_per_token()) {
            call::Tensor taken = call::take(given, 0, tokens);
            record.inputs[name] = mode == call::Mode::kPrefill
                                      ? std::move(taken)
                                      : call::with_leading(std::move(taken), 1,
                                                           {std::ssize(rows), rows.front().count});
          } else if (input.storage == call::Storage::kFloat && !input.has(call::extent::kState)) {
            record.inputs[name] = given;  // A_log, dt_bias
          }
        });
    if (mode == call::Mode::kPrefill) {
      record.inputs["cu_seqlens"] = bounds(of_rows(rows, [](const Row& r) { return r.count; }));
    }
    return record;
  }

 private:
  [[nodiscard]] std::int64_t place(std::int64_t request, std::int64_t position, bool own) const {
    const auto r = static_cast<std::size_t>(request);
    if (!own) return first_[r + requests_.size()] + position;
    const std::size_t source = position < requests_[r].shared ? r - 1 : r;
    return first_[source] + position;
  }

  const std::vector<Request>& requests_;
  std::vector<std::int64_t> first_{0};
  call::Record record_;
  call::Dims dims_;
};

}  // namespace goldenrule::serving
