// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another (tests/locality.hpp): o and lse of attention, by a column of
// values, a head, a request, later tokens, and slots that no row names.
#include "tests/locality.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/attention/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

struct World {
  call::Record record;

  explicit World(const std::string& line) : record(cases::record_of(line)) {}
  static const verdict::Slice& slice() { return attention::slice(); }
};

// Elements of input `name` whose index `takes`.
template <class F>
void change_where(World& w, const char* name, const Value& f, F&& takes) {
  const auto found = w.record.inputs.find(name);
  if (found == w.record.inputs.end()) return;
  const call::Shape shape = found->second.shape();
  change(w.record, name,
         [&](std::int64_t i, double x) { return takes(call::unravel(shape, i)) ? f(x) : x; });
}

void change_column(World& w, const Value& f) {
  for (const char* name : {"v", "v_cache"}) {
    change_where(w, name, f, [](const call::Shape& i) { return i.back() == 3; });
  }
}

// The axis of heads is the last but one, also of pages.
void change_last_head(World& w, const Value& f) {
  const std::int64_t H = w.record.inputs.at("k").shape()[1];
  for (const char* name : {"k", "v", "k_cache", "v_cache"}) {
    change_where(w, name, f, [=](const call::Shape& i) { return i[i.size() - 2] == H - 1; });
  }
}

void change_last_request(World& w, const Value& f) {
  const call::Tensor& bounds = w.record.inputs.at("cu_seqlens_q");
  const auto first = static_cast<std::int64_t>(bounds[bounds.size() - 2]);
  for (const char* name : {"k", "v"}) {
    change_where(w, name, f, [=](const call::Shape& i) { return i[0] >= first; });
  }
}

void change_later_tokens(World& w, const Value& f) {
  const auto end = static_cast<std::int64_t>(w.record.inputs.at("cu_seqlens_q")[1]);
  for (const char* name : {"k", "v"}) {
    change_where(w, name, f, [=](const call::Shape& i) { return i[0] >= end - 2 && i[0] < end; });
  }
}

// Slots behind the length of a request, and pages that the table does not name.
void change_unnamed_slots(World& w, const Value& f) {
  const call::Tensor& table = w.record.inputs.at("page_table");
  const call::Tensor& lens = w.record.inputs.at("kv_lens");
  const call::Shape cache = w.record.inputs.at("k_cache").shape();
  const std::int64_t columns = table.shape()[1];
  std::set<std::pair<std::int64_t, std::int64_t>> named;
  for (std::int64_t b = 0; b < lens.size(); ++b) {
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(lens[b]); ++j) {
      const double page = table[b * columns + j / cache[1]];
      named.emplace(static_cast<std::int64_t>(page), j % cache[1]);
    }
  }
  for (const char* name : {"k_cache", "v_cache"}) {
    change_where(w, name, f, [&](const call::Shape& i) { return !named.contains({i[0], i[1]}); });
  }
}

using Place = PlaceOf<World>;
using Disturbed = DisturbedOf<World>;

// Large scores err by as much as they are apart, and a mean of the values may then be any of them.
// With keys of 3e38 a sum of products leaves fp32 on its way, and an honest kernel returns what it
// likes.
void follows(const std::string& line, const std::vector<Place>& unread) {
  CAPTURE(line);
  const World base(line);
  std::vector<Disturbed> all = disturbances<World>({{"head", change_last_head},
                                                    {"request", change_last_request},
                                                    {"later tokens", change_later_tokens}});
  for (Disturbed& what : all) what.may_leave_vacuous = true;
  std::vector<Place> finite = unread;
  finite.push_back({"column of values", change_column});
  std::ranges::move(disturbances<World>(finite, test::numbers(3e38)), std::back_inserter(all));
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kAttention)) {
    for (const Disturbed& what : all) CHECK(holds(base, contract, {what}) > 0);
  }
}

}  // namespace

TEST_CASE("attention: no element is paid for by another, decode") {
  for (const char* io : {"f32", "bf16"}) {
    follows("op=attention mode=decode lens=4,4 ctx=33,70 H=2 HV=4 K=32 V=16 io=" + std::string(io),
            {{"slots of nobody", change_unnamed_slots}});
  }
}

TEST_CASE("attention: no element is paid for by another, prefill") {
  follows("op=attention mode=prefill lens=40,9 H=2 HV=4 K=32 V=16 mask=causal io=bf16", {});
}
