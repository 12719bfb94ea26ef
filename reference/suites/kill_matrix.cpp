// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/kill_matrix.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/suites/case_judge.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::suites {
namespace {

// A case and the column of the suite that it comes from.
struct Entry {
  cases::Case c;
  std::size_t suite;
};

std::vector<Entry> load_cases(const std::vector<std::string>& names) {
  std::vector<Entry> loaded;
  for (std::size_t s = 0; s < names.size(); ++s) {
    if (names[s].find('=') == std::string::npos) {
      for (const cases::Case& c : cases::load_suite(names[s]).cases) loaded.push_back({c, s});
    } else {
      for (const std::string& line : cases::expand(names[s])) {
        loaded.push_back({cases::parse(line), s});
      }
    }
  }
  return loaded;
}

// Cheapest first, but one case of every kind before the second of any: most mistakes are seen in
// any case where they apply, and the others need a pattern or a gate of their own.
std::vector<Entry> in_visiting_order(std::vector<Entry> all) {
  std::ranges::stable_sort(all, {}, [](const Entry& e) { return cases::step_count(e.c); });
  std::map<std::string, int> seen;
  std::vector<std::pair<int, std::size_t>> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const cases::Case& c = all[i].c;
    const std::string kind = std::to_string(all[i].suite) + ' ' + std::string(call::name_of(c.op)) +
                             ' ' + std::string(call::name_of(c.mode)) + ' ' + c.pattern + ' ' +
                             std::string(call::name_of(c.convention.gate)) + ' ' +
                             std::string(call::info(c.state).name);
    order.emplace_back(seen[kind]++, i);
  }
  std::ranges::stable_sort(order);
  std::vector<Entry> sorted;
  for (const auto& [rank, i] : order) sorted.push_back(all[i]);
  return sorted;
}

// The same call with NaN in k and v of a token that follows the tail of another sequence.
std::optional<call::Record> poisoned(const call::Record& record) {
  if (record.mode != call::Mode::kPrefill || !call::operation(record.op).has_states)
    return std::nullopt;
  const call::Plan plan = call::make_plan(record, false);
  for (std::size_t n = 1; n < plan.sequences.size(); ++n) {
    const call::Sequence& s = plan.sequences[n];
    if (s.token_count == 0 || s.first_token == 0) continue;
    call::Record twin = record;
    for (const char* name : {"k", "v"}) {
      call::Tensor& t = twin.inputs.at(name);
      const std::int64_t row = t.size() / plan.dims.tokens;
      for (std::int64_t i = 0; i < row; ++i) {
        t.set(s.first_token * row + i, std::numeric_limits<double>::quiet_NaN());
      }
    }
    return twin;
  }
  return std::nullopt;
}

bool is_of(const calls::Mistake& mistake, call::Op op) {
  const auto own = mistakes_of(op);
  return &mistake >= own.data() && &mistake < own.data() + own.size();
}

class MatrixBuilder {
 public:
  explicit MatrixBuilder(const MatrixOptions& options) : options_(options) {
    given_ = options.contract;
    for (const calls::Mistake& m : mistakes()) {
      if (options.mutants.empty() ||
          std::ranges::find(options.mutants, m.name) != options.mutants.end()) {
        chosen_.push_back(&m);
      }
    }
    for (const std::string& name : options.mutants) {
      if (std::ranges::none_of(chosen_, [&](const auto* m) { return m->name == name; })) {
        throw Error(ErrorKind::kArgument, "--mutant", "a mistake of the table", "'" + name + "'");
      }
    }
  }

  Matrix run() {
    const std::vector<Entry> order = in_visiting_order(load_cases(options_.suites));
    for (std::size_t i = options_.part - 1; i < order.size(); i += options_.parts) {
      if (options_.begin_case) options_.begin_case(i, order.size(), cases::canonical(order[i].c));
      visit(order[i]);
    }
    for (const calls::Mistake* m : chosen_) {
      const bool asked =
          std::ranges::any_of(order, [&](const Entry& e) { return is_of(*m, e.c.op); });
      if (!asked) continue;  // none of the cases is of its family
      const auto first = rows_.lower_bound({m, ""});
      if (first == rows_.end() || first->first.first != m) {
        matrix_.unreached.emplace_back(m->name);
      }
    }
    // In the order of the table: the keys are addresses within it.
    for (auto& [key, row] : rows_) matrix_.rows.push_back(std::move(row));
    return std::move(matrix_);
  }

 private:
  using Key = std::pair<const calls::Mistake*, std::string>;

  void visit(const Entry& entry) {
    const cases::Case& c = entry.c;
    const call::Record record = cases::make_record(c);
    if (!given_) return visit(entry, record, slice_of(record.op).default_contract(record));
    if (!given_->is_of(call::family_of(record.op))) return;
    const bool chunked = given_->chunked() != nullptr;
    if (chunked && c.mode != call::Mode::kPrefill) return;  // nobody chunks these
    visit(entry, record, *given_);
  }

  void visit(const Entry& entry, const call::Record& record, const contract::Contract& contract) {
    const cases::Case& c = entry.c;
    std::vector<const calls::Mistake*> plain = wanted(record, contract, entry.suite);
    std::vector<const calls::Mistake*> on_twin;
    const std::optional<call::Record> twin = poisoned(record);
    if (twin) {
      for (const calls::Mistake* m : wanted(*twin, contract, entry.suite)) {
        if (!m->applies(record)) on_twin.push_back(m);
      }
    }
    if (plain.empty() && on_twin.empty()) return;
    ++matrix_.cases;
    try_on(record, contract, plain, cases::canonical(c), entry.suite);
    if (!on_twin.empty()) {
      try_on(*twin, contract, on_twin, cases::canonical(c) + " (with a NaN)", entry.suite);
    }
  }

  // Seen often enough; or not seen in one case of each kind, where that is no survivor: another
  // suite sees it or the contract permits it.
  [[nodiscard]] bool is_done(const MatrixRow& row, const MatrixCell& cell) const {
    constexpr int kEvidence = 100;
    if (options_.all) return false;
    return cell.kills >= options_.kills ||
           (cell.applies >= kEvidence &&
            (row.kills() >= options_.kills || !row.permitted_by.empty()));
  }

  // The mistakes that can be made in this call and have not been seen often enough.
  [[nodiscard]] std::vector<const calls::Mistake*> wanted(const call::Record& record,
                                                          const contract::Contract& contract,
                                                          std::size_t suite) const {
    std::vector<const calls::Mistake*> found;
    for (const calls::Mistake* m : chosen_) {
      const auto row = rows_.find({m, std::string(contract.name)});
      if (row != rows_.end() && is_done(row->second, row->second.cells[suite])) continue;
      if (is_of(*m, record.op) && m->applies(record)) found.push_back(m);
    }
    return found;
  }

  void try_on(const call::Record& record, const contract::Contract& contract,
              const std::vector<const calls::Mistake*>& tried, const std::string& line,
              std::size_t suite) {
    const CaseJudge case_judge(record, contract);
    check_honest(case_judge, "exact", contract, line, case_judge.exact_outputs());
    check_honest(case_judge, "emulated", contract, line, case_judge.emulated_outputs());
    std::vector<Finding> findings(tried.size());
    parallel::for_each_index(std::ssize(tried), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      findings[at] = case_judge.commit(*tried[at]);
    });
    for (std::size_t i = 0; i < tried.size(); ++i) {
      const calls::Mistake* m = tried[i];
      const Finding& found = findings[i];
      MatrixRow& row = rows_[{m, std::string(contract.name)}];
      if (row.cells.empty()) {
        row.number = static_cast<std::size_t>(m - mistakes().data());
        row.mutant = m->name;
        row.contract = contract.name;
        row.permitted_by = calls::permitted_by(*m, contract);
        row.cells.resize(options_.suites.size());
      }
      MatrixCell& cell = row.cells[suite];
      ++cell.applies;
      if (found.out_of_budget == 0) {
        row.survivors.push_back(line);
        row.largest_ratio = std::max(row.largest_ratio, found.max_ratio);
        continue;
      }
      ++cell.kills;
      if (found.out_of_budget > cell.most_elements) {
        cell.most_elements = found.out_of_budget;
        cell.most_case = line;
      }
    }
  }

  void check_honest(const CaseJudge& case_judge, const char* kernel,
                    const contract::Contract& contract, const std::string& line,
                    const call::TensorMap& outputs) {
    const Finding found = case_judge.judge(outputs);
    matrix_.honest_elements += found.compared;
    if (found.out_of_budget == 0) return;
    matrix_.false_alarms.push_back({.kernel = kernel,
                                    .contract = std::string(contract.name),
                                    .case_line = line,
                                    .tensor = found.worst_tensor,
                                    .out_of_budget = found.out_of_budget,
                                    .max_ratio = found.max_ratio});
  }

  const MatrixOptions& options_;
  std::optional<contract::Contract> given_;
  std::vector<const calls::Mistake*> chosen_;
  std::map<Key, MatrixRow> rows_;
  Matrix matrix_;
};

}  // namespace

int MatrixRow::applies() const {
  int sum = 0;
  for (const MatrixCell& cell : cells) sum += cell.applies;
  return sum;
}

int MatrixRow::kills() const {
  int sum = 0;
  for (const MatrixCell& cell : cells) sum += cell.kills;
  return sum;
}

void join(Matrix& to, const Matrix& from) {
  for (const MatrixRow& more : from.rows) {
    const auto row = std::ranges::find_if(to.rows, [&](const MatrixRow& r) {
      return r.number == more.number && r.contract == more.contract;
    });
    if (row == to.rows.end()) {
      to.rows.push_back(more);
      continue;
    }
    for (std::size_t s = 0; s < row->cells.size(); ++s) {
      MatrixCell& cell = row->cells[s];
      const MatrixCell& other = more.cells[s];
      cell.applies += other.applies;
      cell.kills += other.kills;
      if (other.most_elements > cell.most_elements) {
        cell.most_elements = other.most_elements;
        cell.most_case = other.most_case;
      }
    }
    row->survivors.insert(row->survivors.end(), more.survivors.begin(), more.survivors.end());
    row->largest_ratio = std::max(row->largest_ratio, more.largest_ratio);
  }
  std::ranges::stable_sort(to.rows, {}, &MatrixRow::number);
  to.false_alarms.insert(to.false_alarms.end(), from.false_alarms.begin(), from.false_alarms.end());
  std::erase_if(to.unreached, [&](const std::string& name) {
    return std::ranges::find(from.unreached, name) == from.unreached.end();
  });
  to.cases += from.cases;
  to.honest_elements += from.honest_elements;
}

Matrix kill_matrix(const MatrixOptions& options) { return MatrixBuilder(options).run(); }

}  // namespace goldenrule::suites
