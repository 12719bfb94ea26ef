// SPDX-License-Identifier: Apache-2.0
//
// The digest over what a file means: it depends on all of it and on nothing else. (That it is the
// digest of the list that meaning.hpp describes is tested from Python, by another implementation.)
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <span>

#include "fixtures/schema/digest.hpp"
#include "fixtures/schema/meaning.hpp"
#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

using Edit = std::function<void(Fixture&)>;

std::string digest_after(const Edit& edit) {
  Fixture f = small_fixture();
  edit(f);
  return digest(meaning(f));
}

TEST_CASE("everything that a file says is in its meaning, and changes its digest") {
  const std::vector<std::pair<std::string, Edit>> edits{
      {"/@op", [](Fixture& f) { f.record.op = call::Op::kKda; }},
      {"/@source", [](Fixture& f) { f.record.source += "x"; }},
      {"/@contract", [](Fixture& f) { f.record.contract.clear(); }},
      {"/@case", [](Fixture& f) { f.record.case_line += " "; }},
      {"/@pattern", [](Fixture& f) { f.pattern = std::string("B"); }},
      {"/@seed", [](Fixture& f) { f.seed = 3; }},
      {"/@seed", [](Fixture& f) { f.seed.reset(); }},
      {"/@precision_bits", [](Fixture& f) { f.precision_bits = 168; }},
      {"/@generator", [](Fixture& f) { f.generator = std::string("other"); }},
      {"/convention@qk_l2norm",
       [](Fixture& f) { f.record.convention.qk_l2norm = call::QkNorm::kNone; }},
      {"/convention@lower_bound", [](Fixture& f) { f.record.convention.lower_bound = -4; }},
      {"/convention@scale", [](Fixture& f) { f.record.convention.scale = 0.75; }},
      {"/convention@pad_slot", [](Fixture& f) { f.record.convention.pad_slot = 7; }},
      {"/inputs/q", [](Fixture& f) { f.record.inputs.at("q").bytes()[0] ^= std::byte{1}; }},
      {"/inputs/state_indices", [](Fixture& f) { f.record.inputs.erase("state_indices"); }},
      {"/inputs/state_indices",
       [](Fixture& f) {  // the same slots in another type
         auto& t = f.record.inputs.at("state_indices");
         t = call::Tensor(call::DType::kI64, t.shape(), t.to_doubles());
       }},
      {"/golden/o", [](Fixture& f) { f.golden.at("o").value.set(0, -0.0); }},
      {"/golden/o@radius", [](Fixture& f) { f.golden.at("o").radius = 2e-16; }},
      {"/budget/recurrent_f32/o",
       [](Fixture& f) { f.budgets.at("recurrent_f32").at("o").set(1, 7.0); }},
      {"/stages/G", [](Fixture& f) { f.stages.at("G").set(2, 7.0); }},
      {"/stages@chunk", [](Fixture& f) { f.stage_chunk = 32; }},
      {"/stages/G@form", [](Fixture& f) { f.stage_forms["G"] = "log2"; }},
  };
  const Meaning before = meaning(small_fixture());
  std::set<std::string> digests{digest(before)};
  for (const auto& [path, edit] : edits) {
    CAPTURE(path);
    Fixture f = small_fixture();
    edit(f);
    if (path == "/@op") {  // kda wants other shapes of a gate
      f.record.inputs["a"] = pattern(call::DType::kF64, {2, 3, 2, 4});
      CHECK(differences(before, meaning(f)) == std::vector<std::string>{"/@op", "/inputs/a"});
    } else {
      CHECK(differences(before, meaning(f)) == std::vector<std::string>{path});
      CHECK(differences(meaning(f), before) == std::vector<std::string>{path});
    }
    CHECK(digests.insert(digest(meaning(f))).second);
  }
}

TEST_CASE("outputs and the writing out of defaults are no part of the meaning") {
  const std::string before = digest(meaning(small_fixture()));
  CHECK(digest_after([](Fixture& f) { f.record.outputs.clear(); }) == before);
  CHECK(digest_after([](Fixture& f) { f.meaning_sha256 = std::string("what a file said"); }) ==
        before);
  const auto without_scale = [](Fixture& f) { f.record.convention.scale.reset(); };
  const auto default_scale = [](Fixture& f) { f.record.convention.scale = 0.5; };  // K = 4
  CHECK(digest_after(without_scale) == digest_after(default_scale));
}

// Otherwise a text could look like the end of itself and the next entry.
TEST_CASE("no text can look like another list") {
  CHECK(digest({{"/@a", "x,3:/@b,1:y"}}) != digest({{"/@a", "x"}, {"/@b", "y"}}));
  CHECK(digest({{"/@a", "xy"}}) != digest({{"/@ax", "y"}}));
  const std::string netstrings("3:/@a,1:x,");
  CHECK(digest({{"/@a", "x"}}) == sha256_hex(std::as_bytes(std::span(netstrings))));
}

TEST_CASE("the digest does not depend on the storage, and a wrong one is found") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  for (const std::int64_t V : {3, 8000}) {  // contiguous and chunked
    write_fixture(path, small_fixture(V));
    const Fixture read = read_fixture(path);
    CHECK(read.meaning_sha256 == digest(meaning(small_fixture(V))));
    CHECK(read.meaning_sha256 == digest(meaning(read)));
  }
  const std::string right = read_fixture(path).meaning_sha256;
  const std::string wrong(64, '0');
  write_edited(
      path, [&](hid_t f) { put_attribute(f, "/", "meaning_sha256", wrong); }, 8000);
  check_refused(path, ErrorKind::kValue, "/@meaning_sha256", "SHA-256 " + wrong, right);
  CHECK_NOTHROW((void)read_fixture(path, {.check_digests = false}));
  // The whole is not known where parts are not loaded.
  CHECK_NOTHROW((void)read_fixture(path, {.stages = false}));
  CHECK_NOTHROW((void)read_fixture(path, {.budgets = false}));
  // A changed convention, contract or radius, whose tensors are all what they were.
  const auto changed = [&](const std::function<void(hid_t)>& edit) {
    write_edited(path, [&](hid_t f) {
      put_attribute(f, "/", "meaning_sha256", digest(meaning(small_fixture())));
      edit(f);
    });
    check_refused(path, ErrorKind::kValue, "/@meaning_sha256", "SHA-256 ", "");
  };
  changed([](hid_t f) { put_attribute(f, "/convention", "head_map", std::string("grouped")); });
  changed([](hid_t f) { put_attribute(f, "/", "contract", std::string("ideal")); });
  changed([](hid_t f) { put_attribute(f, "/golden/o", "radius", 1.0); });
  changed([](hid_t f) { H5Ldelete(f, "/stages/G", H5P_DEFAULT); });
}

TEST_CASE("a file that holds a call alone is whole, whatever else is not asked for") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const std::string wrong(64, '0');
  write_edited(path, [&](hid_t f) {
    for (const char* group : {"golden", "budget", "stages"}) H5Ldelete(f, group, H5P_DEFAULT);
    put_attribute(f, "/", "meaning_sha256", wrong);
  });
  check_refused(path, ErrorKind::kValue, "/@meaning_sha256", "SHA-256 " + wrong, "",
                {.golden = false, .budgets = false, .stages = false});
}

TEST_CASE("a radius is a finite number") {
  Fixture f = small_fixture();
  f.golden.at("o").radius = HUGE_VAL;
  CHECK_THROWS_WITH_AS(validate(f), "/golden/o@radius: expected a finite number >= 0, actual inf",
                       Error);
}

}  // namespace
}  // namespace goldenrule::schema
