// SPDX-License-Identifier: Apache-2.0
//
// Attention against the oracle, element by element under flash_bf16: the cases of its suites and
// what they leave out (widths, tiles of rows and shares of the keys of the tuned kernels, strides,
// alignments).
#include "fixtures/call/error.hpp"
#include "tests/gpu/check_cases.hpp"
#include "tools/gpu_run/attention_call.hpp"

namespace goldenrule::test {
namespace {

/// Why a case is refused.
struct Refusal {
  ErrorKind kind;
  const char* words;
  bool by_library;  ///< else by the way from a record: the interface has no argument for it
};

/// nullptr: the kernels take the case.
const Refusal* refusal_of(const call::Record& record) {
  static const Refusal kSoftCap{ErrorKind::kValue, "/convention@soft_cap", false};
  static const Refusal kF32{ErrorKind::kArgument,
                            "unsupported: q.dtype: expected f16 or bf16, actual f32", true};
  if (record.convention.soft_cap != 0.0) return &kSoftCap;
  return record.inputs.at("q").dtype() == call::DType::kF32 ? &kF32 : nullptr;
}

/// "" or what is wrong with how a case is refused: as another error, or with memory placed (where
/// the library is not reached), bytes written or a kernel launched.
std::string wrong_refusal(const call::Record& record, const Refusal& refusal) {
  const std::map<std::string, std::uint64_t> hits = hits_by_name();
  std::string complaint;
  int placed = 0;
  try {
    if (refusal.by_library) {
      LiveCall live(record);
      try {
        live.launch();
      } catch (const Error&) {
        live.synchronize();
        complaint = live.stray_write({.o = false, .final_state = {}, .kept_states = {}});
        throw;
      }
    } else {
      static_cast<void>(gpu::make_attention_args(record, [&](const auto&, const auto&) {
        ++placed;
        return goldenrule_gpu_tensor{};
      }));
    }
    return "not refused";
  } catch (const Error& error) {
    if (error.kind() != refusal.kind ||
        std::string(error.what()).find(refusal.words) == std::string::npos) {
      return error.what();
    }
  }
  if (placed > 0) return "memory was placed";
  if (hits_by_name() != hits) return "a kernel was launched";
  return complaint;
}

struct Selected {
  std::vector<LiveCase> taken;
  int soft_caps = 0, f32 = 0;  ///< refused
};

/// The cases of a suite that the kernels take; the others have to be refused as they should be.
Selected select(const std::string& suite) {
  Selected selected;
  for (const cases::Case& call : cases::load_suite(suite).cases) {
    const LiveCase c{.call = call, .change = "", .placement = {}};
    const call::Record record = make_record(c);
    const Refusal* refusal = refusal_of(record);
    // By its words, too: a case that loses its cap on the way would be taken.
    const bool capped = cases::canonical(call).find(" soft_cap=") != std::string::npos;
    CHECK_MESSAGE(capped == (refusal != nullptr && !refusal->by_library), record.case_line);
    if (refusal == nullptr) {
      selected.taken.push_back(c);
      continue;
    }
    CHECK_MESSAGE(wrong_refusal(record, *refusal) == "", record.case_line);
    ++(refusal->by_library ? selected.f32 : selected.soft_caps);
  }
  return selected;
}

void check_attention_suite(const std::string& name) {
  REQUIRE_GPU();
  const Selected selected = select(name);
  check_cases(name, selected.taken);
  std::printf("  refused: %d soft caps, %d of f32\n", selected.soft_caps, selected.f32);
}

TEST_CASE("attention: every case of its suites") {
  check_attention_suite("attention_smoke");
  check_attention_suite("attention_boundary");
  check_attention_suite("attention_stress");
}

// Of each suite how many cases are refused, and for what: what is taken is all the rest.
TEST_CASE("attention: refused are soft caps and f32, before anything is written") {
  REQUIRE_GPU();
  struct Expected {
    const char* suite;
    int soft_caps, f32;
  };
  for (const Expected& e : {Expected{"attention_smoke", 1, 0}, Expected{"attention_boundary", 6, 8},
                            Expected{"attention_stress", 12, 0}}) {
    CAPTURE(e.suite);
    const Selected selected = select(e.suite);
    CHECK(selected.soft_caps == e.soft_caps);
    CHECK(selected.f32 == e.f32);
    CHECK(std::ssize(selected.taken) + e.soft_caps + e.f32 ==
          std::ssize(cases::load_suite(e.suite).cases));
  }
}

TEST_CASE("attention: tuned shapes, every pattern of values") { check_list("attention tuned"); }
TEST_CASE("attention: masks, tables and layouts") { check_list("attention calls"); }
TEST_CASE("attention: strides and alignments") { check_list("attention strides"); }

}  // namespace
}  // namespace goldenrule::test
