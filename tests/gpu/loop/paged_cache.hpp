// SPDX-License-Identifier: Apache-2.0
//
// Keys and values in pages as a server keeps them: rows are appended, overwritten and cropped, and
// pages are handed out and taken back. What nobody has written is NaN; what was rejected stays
// where it was until it is overwritten.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/record.hpp"
#include "tests/gpu/loop/model.hpp"

namespace goldenrule::test::loop {

inline constexpr std::int64_t kPage = 16, kPages = 160;

class PagedCache {
 public:
  explicit PagedCache(std::int64_t rows) : tables_(static_cast<std::size_t>(rows)) {
    for (call::Tensor* tensor : {&k_, &v_}) {
      *tensor = call::Tensor(call::DType::kBF16, {kPages, kPage, kHeads, kDim});
      for (std::int64_t i = 0; i < tensor->size(); ++i) {
        tensor->set(i, std::numeric_limits<double>::quiet_NaN());
      }
    }
    for (std::int64_t page = 0; page < kPages; ++page) free_.push_back(page * 7 % kPages);
  }

  /// Key and value `t` of a row.
  void write(std::size_t row, std::int64_t t, const std::vector<double>& k,
             const std::vector<double>& v) {
    auto& table = tables_[row];
    while (std::ssize(table) * kPage <= t) {
      if (free_.empty()) throw Error(ErrorKind::kValue, "cache", "a free page", "none");
      table.push_back(free_.back());
      free_.pop_back();
    }
    const std::int64_t page = table[static_cast<std::size_t>(t / kPage)];
    for (std::size_t i = 0; i < k.size(); ++i) {
      const std::int64_t at =
          (page * kPage + t % kPage) * kHeads * kDim + static_cast<std::int64_t>(i);
      k_.set(at, k[i]);
      v_.set(at, v[i]);
    }
  }
  /// Takes back the pages of a row from column `first` on.
  void release_from(std::size_t row, std::int64_t first) {
    auto& table = tables_[row];
    for (; std::ssize(table) > first; table.pop_back()) free_.push_back(table.back());
  }
  /// k_cache, v_cache, and a table of exactly the width that is needed.
  void give(call::Record& record) const {
    std::size_t width = 1;
    for (const auto& table : tables_) width = std::max(width, table.size());
    call::Integers entries;
    for (const auto& table : tables_) {
      entries.insert(entries.end(), table.begin(), table.end());
      entries.insert(entries.end(), width - table.size(), -1);
    }
    record.inputs["k_cache"] = k_;
    record.inputs["v_cache"] = v_;
    record.inputs["page_table"] =
        call::integer_tensor(entries, {std::ssize(tables_), static_cast<std::int64_t>(width)});
  }
  [[nodiscard]] bool operator==(const PagedCache& other) const {
    return tables_ == other.tables_ && std::ranges::equal(k_.bytes(), other.k_.bytes()) &&
           std::ranges::equal(v_.bytes(), other.v_.bytes());
  }

 private:
  call::Tensor k_, v_;
  std::vector<std::vector<std::int64_t>> tables_;
  std::vector<std::int64_t> free_;
};

}  // namespace goldenrule::test::loop
