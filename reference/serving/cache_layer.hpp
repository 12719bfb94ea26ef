// SPDX-License-Identifier: Apache-2.0
//
// The layer of attention of a simulated server: a paged cache, and the greedy draft acceptance of
// what was drafted. It follows the schedule of the layer with states. Each call of that layer has a
// call of attention behind it, over the same tokens: their rows are k and v of the call, beside the
// cache as it was, and come into the cache behind it. An MTP call has a draft acceptance behind
// that.
//
// A request that goes back to an earlier token keeps its pages; one that begins again gives them
// up, and so does one that is done. One that begins with the prefix of another shares the pages
// that this fills, and has its own copy of the rows behind. Free pages are taken in any order and
// keep what they held, as in a server.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/serving/scheduler.hpp"

namespace goldenrule::serving {

class CacheLayer {
 public:
  /// Keeps references. scenario.cache rows a page.
  CacheLayer(const cases::Scenario& scenario, const std::vector<Request>& requests);

  /// Adds the call of attention of a step, whose rows the cache then has, and the draft acceptance
  /// of an MTP call that accepted a token somewhere.
  void add_calls(const Step& step, std::vector<call::Record>& records);

 private:
  struct Live {
    std::vector<std::int64_t> pages;
    std::int64_t length = 0;  ///< tokens that stay
  };
  [[nodiscard]] call::Record attend(const Step& step);
  [[nodiscard]] std::optional<call::Record> mtp(const Step& step);
  [[nodiscard]] std::vector<double> draw(std::int64_t count);
  [[nodiscard]] call::Tensor drawn(call::DType type, call::Shape shape);
  [[nodiscard]] std::int64_t take_page();
  void enter(const Row& row);
  void share(Live& request, const Live& from, std::int64_t length);
  void release(Live& request);
  void retire(const Step& step);
  void grow(Live& request, std::int64_t length, const Live* next);
  void write(const std::vector<Row>& rows, const Step& step, const call::Record& record);
  void spoil(const Step& step, std::int64_t request, std::int64_t token, call::Tensor& rows);
  [[nodiscard]] call::Tensor table_of(const std::vector<Row>& rows, const Step& step);
  [[nodiscard]] std::int64_t place(const Live& request, std::int64_t t) const;

  const cases::Scenario& scenario_;
  const std::vector<Request>& requests_;
  random::Stream stream_;
  std::int64_t draws_ = 0;
  call::Tensor keys_, values_;
  std::set<std::int64_t> free_;
  std::map<std::int64_t, Live> live_;
  std::vector<std::vector<std::int64_t>> table_;  // of the call before
};

}  // namespace goldenrule::serving
