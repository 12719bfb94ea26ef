// SPDX-License-Identifier: Apache-2.0
//
// Is the first bad stage the one in which the mistake was made? Mistakes of the table, made in one
// stage of the chunk form or in the inputs of a kernel, and single numbers changed.
//
// Length: a table of mistakes, and what each kind of stage, form and refusal does.
#include <doctest/doctest.h>

#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/oracle/stages.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/stages.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using verdict::KernelStages;
using verdict::StagesReport;
using verdict::Verdict;

namespace {

const contract::Contract& f32() { return contract::find_contract("chunk64_f32"); }

KernelStages stored(const call::TensorMap& exact, call::DType dtype = call::DType::kF32) {
  KernelStages kernel;
  for (const auto& [name, tensor] : exact) {
    kernel.tensors.emplace(name, call::Tensor(dtype, tensor.shape(), tensor.to_doubles()));
  }
  return kernel;
}

StagesReport judged(const call::Record& record, const KernelStages& kernel,
                    const contract::Contract& contract = f32()) {
  return verdict::judge_stages(delta::slice(), record, contract, kernel);
}

std::string first_of(const StagesReport& report) {
  return report.first_bad ? report.first_bad->name : "";
}

using goldenrule::cases::record_of;

// A tail, two sequences, a start state, decays that matter.
const std::string kGdn =
    "op=gdn mode=prefill lens=150,40 H=1 HV=2 K=24 V=16 io=f32 gate=softplus h0=1 pattern=E";
const std::string kKda =
    "op=kda mode=prefill lens=150,40 H=1 HV=1 K=24 V=16 io=f32 gate=bounded h0=1 pattern=Dmixed";

const verdict::TensorReport& stage(const StagesReport& report, const std::string& name) {
  for (const verdict::StageReport& s : report.stages) {
    if (s.tensor.name == name) return s.tensor;
  }
  FAIL("no stage " << name);
  return report.stages.front().tensor;
}

}  // namespace

TEST_CASE("first bad stage: mistakes in one stage of the chunk form") {
  using namespace delta;
  struct Row {
    const char* what;
    ChunkVariant variant;
    const char* first;  // "": what is wrong lies behind all stages
  };
  const Row rows[]{{"none", {}, ""},
                   {"G restarts", {.restart_row = 32}, "G"},
                   {"base of decays between sub-chunks", {.wrong_base_rows = 16}, "A"},
                   {"A couples halves only", {.inverse_rows = 32}, "A"},
                   {"the inverse of first order", {.inverse = Inverse::kFirstOrder}, "T"},
                   {"A keeps its diagonal", {.inverse = Inverse::kDiagonal}, "T"},
                   {"w without decay", {.order = {.predicted = false}}, "w"},
                   {"w with its decay outside", {.w_decay_outside = true}, "w"},
                   {"base of decays from the start", {.wrong_base_outside = true}, "w"},
                   {"the end of a chunk early", {.end_row = EndRow::kEarly}, "h"},
                   {"the end of a chunk by key", {.end_row = EndRow::kByKey}, "h"},
                   {"the old state is lost", {.keep_state = false}, "h"},
                   {"the state in fp16", {.state_operand_f16 = true}, "v_new"},
                   {"attention without decay", {.order = {.attention = false}}, ""},
                   {"queries without decay", {.order = {.read = false}}, ""},
                   {"o reads the state transposed", {.transposed_from = 0}, ""},
                   {"rows of a tail in o", {.swap_tail_output = true}, ""}};
  for (const std::string& line : {kGdn, kKda}) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    for (const Row& row : rows) {
      CAPTURE(row.what);
      const StagesReport report = judged(record, stored(variant_stages(record, row.variant)));
      CHECK(first_of(report) == row.first);
      CHECK(report.stages.size() == 10);
    }
  }
}

// A recorder widens what a kernel stored in bf16; one that reads fp32 stores none.
TEST_CASE("first bad stage: a rounded state is one where nothing else is of bf16") {
  const call::Record record = record_of(kGdn);
  call::TensorMap stages = delta::emulate_stages(record, f32(), 1);
  CHECK(first_of(judged(record, stored(stages))).empty());
  call::Tensor& h = stages.at("h");
  for (std::int64_t i = 0; i < h.size(); ++i) h.set(i, call::round_to(call::DType::kBF16, h[i]));
  CHECK(first_of(judged(record, stored(stages))) == "h");
}

TEST_CASE("first bad stage: mistakes of inputs are found where they first change a stage") {
  std::map<std::string, int> found;
  int none = 0;
  int later = 0;
  int made = 0;
  std::string lost;
  for (std::string line : {kGdn, kKda}) {
    line.replace(line.find("150,40"), 6, "70,5");
    const call::Record record = record_of(line);
    const call::TensorMap honest = delta::emulate_stages(record, f32(), 1);
    const calls::Kernel kernel = [](const call::Record& r) {
      return delta::emulate_stages(r, f32(), 1);
    };
    for (const calls::Mistake& mistake : delta::mistakes()) {
      if (!mistake.applies(record)) continue;
      call::TensorMap stages;
      try {
        stages = mistake.commit(record, kernel);
      } catch (const std::exception&) {
        continue;  // it changes outputs, which are not there
      }
      if (!stages.contains("beta")) continue;  // it does not ask the kernel
      // The first stage that has other numbers at all; the walk over the chunks is one.
      std::string first;
      for (const verdict::StageRow& row : delta::stage_table()) {
        const std::string name(row.name);
        if (!stages.contains(name) || !first.empty()) continue;
        const call::Tensor& a = stages.at(name);
        const call::Tensor& b = honest.at(name);
        if (a.shape() != b.shape()) first = "shape";
        for (std::int64_t i = 0; first.empty() && i < a.size(); ++i) {
          if (a[i] != b[i]) first = row.walk != verdict::StageWalk::kNone ? "walk" : name;
        }
      }
      if (first.empty() || first == "shape") continue;
      ++made;
      const StagesReport report = judged(record, stored(stages));
      std::string bad = first_of(report);
      if (bad == "h" || bad == "v_new") bad = "walk";
      CAPTURE(mistake.name);
      const auto place = [](const std::string& name) {
        const auto table = delta::stage_table();
        for (std::size_t i = 0; i < table.size(); ++i) {
          if (table[i].name == name) return i;
        }
        return table.size();
      };
      if (bad.empty()) {
        ++none;  // an error that fp32 explains
        lost += " " + std::string(mistake.name);
      } else {
        CHECK(place(bad) >= place(first));  // never one that is still right
        later += bad == first ? 0 : 1;
        ++found[bad];
      }
    }
  }
  std::string counts;
  for (const auto& [name, count] : found) counts += " " + name + " " + std::to_string(count);
  MESSAGE(made << " mistakes change a stage; the first bad one is" << counts << "; " << later
               << " of them behind the first that has other numbers, " << none
               << " are explained by fp32:" << lost);
  CHECK(made >= 40);
  CHECK(none * 5 <= made);
  CHECK(later * 5 <= made);
}

TEST_CASE("first bad stage: a number is named by sequence, chunk, token, head and channel") {
  const call::Record record = record_of(kGdn);
  const call::TensorMap honest = delta::emulate_stages(record, f32(), 2);
  // Token 70 of sequence 0, head 1, value 3 of u; and v_new of an earlier chunk, which comes later.
  KernelStages kernel = stored(honest);
  call::Tensor& u = kernel.tensors.at("u");
  u.set((70 * 2 + 1) * 16 + 3, u[(70 * 2 + 1) * 16 + 3] + 0.01);
  kernel.tensors.at("v_new").set(5, 7.0);
  StagesReport report = judged(record, kernel);
  REQUIRE(report.first_bad);
  CHECK(report.first_bad->name == "u");
  CHECK(verdict::to_string(report.first_bad->worst.coordinates) ==
        "sequence 0, chunk 1, token 70, head 1, value 3");
  CHECK(report.first_bad->elements == 1);
  CHECK(stage(report, "v_new").out_of_budget == 1);
  CHECK(stage(report, "w").verdict == Verdict::kWithinBudget);
  // The state at the start of chunk 2 is computed after v_new of chunk 1 and before that of
  // chunk 2.
  kernel = stored(honest);
  kernel.tensors.at("h").set(4L * 24 * 16 + 5, 3.0);
  kernel.tensors.at("v_new").set(140L * 2 * 16, 9.0);
  report = judged(record, kernel);
  REQUIRE(report.first_bad);
  CHECK(report.first_bad->name == "h");
  CHECK(report.first_bad->chunk == 2);
  kernel.tensors.at("v_new").set(100L * 2 * 16, 9.0);
  CHECK(first_of(judged(record, kernel)) == "v_new");
  // The second sequence begins a chunk of its own: chunk 3 of all of them is its chunk 0.
  kernel = stored(honest);
  kernel.tensors.at("h").set(3L * 2 * 24 * 16, 3.0);
  report = judged(record, kernel);
  REQUIRE(report.first_bad);
  CHECK(verdict::to_string(report.first_bad->worst.coordinates) ==
        "sequence 1, chunk 0, head 0, key 0, value 0");
}

TEST_CASE("first bad stage: NaN and Inf are bad, what is not defined is not judged") {
  const call::Record record = record_of(kGdn);
  const call::TensorMap honest = delta::emulate_stages(record, f32(), 1);
  for (const double x :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    KernelStages kernel = stored(honest);
    kernel.tensors.at("T").set(64L * 2 * 64, x);  // row 0 of chunk 1: its diagonal
    CHECK(first_of(judged(record, kernel)) == "T");
    kernel = stored(honest);
    kernel.tensors.at("T").set(64L * 2 * 64 + 1, x);    // above the diagonal
    kernel.tensors.at("A").set(64L * 2 * 64, x);        // the diagonal
    kernel.tensors.at("A").set(149L * 2 * 64 + 63, x);  // behind the end of the sequence
    CHECK(first_of(judged(record, kernel)).empty());
  }
  // An input that is none: nothing of its head from that chunk on, what is before it is judged.
  call::Record with_nan = record;
  with_nan.inputs.at("v").set(141L * 16, std::numeric_limits<double>::quiet_NaN());
  KernelStages spoilt = stored(delta::emulate_stages(with_nan, f32(), 1));
  StagesReport before = judged(with_nan, spoilt);
  CHECK(first_of(before).empty());
  CHECK(stage(before, "u").verdict == Verdict::kWithinBudget);
  CHECK(stage(before, "u").undefined == 86);
  spoilt.tensors.at("u").set(127L * 16, 5.0);
  CHECK(first_of(judged(with_nan, spoilt)) == "u");
  // Rows of a padded request.
  const call::Record padded =
      record_of("op=gdn mode=mtp B=3 T=4 H=1 HV=1 K=4 V=2 io=f32 slots=padded");
  KernelStages kernel = stored(delta::emulate_stages(padded, f32(), 1));
  for (std::int64_t i = 16; i < 24; ++i) kernel.tensors.at("u").set(i, 5.0);
  const StagesReport report = judged(padded, kernel);
  CHECK(first_of(report).empty());
  CHECK(stage(report, "u").undefined == 4 * 2);
}

TEST_CASE(
    "first bad stage: another form is no accusation, and a declared one is taken at its word") {
  const call::Record record = record_of(
      "op=gdn mode=prefill lens=70 H=1 HV=1 K=16 V=16 io=f32 gate=softplus h0=1 pattern=E");
  const call::TensorMap honest = delta::emulate_stages(record, f32(), 3);
  const auto changed = [&](const std::string& name, double factor) {
    KernelStages kernel = stored(honest);
    call::Tensor& t = kernel.tensors.at(name);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, t[i] * factor);
    return kernel;
  };
  struct Row {
    const char *name, *form;
    double factor;
  };
  for (const Row& row : {Row{"G", "log2", 1.0 / std::log(2.0)}, Row{"q", "unscaled", 4.0},
                         Row{"A", "minus", -1.0}}) {
    CAPTURE(row.name);
    KernelStages kernel = changed(row.name, row.factor);
    StagesReport report = judged(record, kernel);
    CHECK(first_of(report).empty());
    CHECK(stage(report, row.name).verdict == Verdict::kSkipped);
    CHECK(stage(report, row.name).reason.find(row.form) != std::string::npos);
    kernel.forms[row.name] = row.form;
    report = judged(record, kernel);
    CHECK(stage(report, row.name).verdict == Verdict::kWithinBudget);
    // Said to be the first form, or right in no form.
    kernel.forms[row.name] = std::string(row.form) == "log2"       ? "log"
                             : std::string(row.form) == "unscaled" ? "scaled"
                                                                   : "plus";
    CHECK(first_of(judged(record, kernel)) == row.name);
    CHECK(first_of(judged(record, changed(row.name, 1.5))) == row.name);
  }
  KernelStages kernel = stored(honest);
  call::Tensor& h = kernel.tensors.at("h");
  call::Tensor turned = h;
  for (std::int64_t i = 0; i < h.size(); ++i) {
    turned.set(i / 256 * 256 + i % 16 * 16 + i / 16 % 16, h[i]);
  }
  h = turned;
  CHECK(stage(judged(record, kernel), "h").verdict == Verdict::kSkipped);
  kernel.forms["h"] = "other";
  CHECK(stage(judged(record, kernel), "h").verdict == Verdict::kWithinBudget);
}

TEST_CASE("first bad stage: chunks, contracts and calls that have none") {
  const call::Record record = record_of(kGdn);
  // Chunks of 32, which the contract does not say.
  contract::Contract of32 = f32();
  std::get<contract::Chunked>(of32.model).chunk = 32;
  KernelStages kernel = stored(delta::emulate_stages(record, of32, 1));
  CHECK_THROWS_WITH_AS((void)judged(record, kernel),
                       "/stages/A: expected [190,2,64] = tokens,HV,C in chunks of 64, actual "
                       "[190,2,32]",
                       Error);
  kernel.chunk = 32;
  StagesReport report = judged(record, kernel);
  CHECK(first_of(report).empty());
  CHECK(report.chunk == 32);
  // A contract without chunks, and one whose kernels have no w and u.
  report = judged(record, stored(delta::emulate_stages(record, f32(), 1)),
                  contract::find_contract("recurrent_f32"));
  CHECK(report.reason.find("has no chunks") != std::string::npos);
  kernel = stored(delta::chunk_stages(record, 64));
  report = judged(record, kernel, contract::find_contract("chunk64_bf16_direct"));
  CHECK(stage(report, "u").verdict == Verdict::kSkipped);
  CHECK(stage(report, "v_new").out_of_budget == 0);
  // Checkpoints inside of chunks.
  const call::Record kept = record_of(kGdn + " checkpoints=after every=16");
  report = judged(kept, stored(delta::chunk_stages(kept, 64)));
  CHECK(report.reason.find("checkpoints inside of chunks") != std::string::npos);
}

TEST_CASE("first bad stage: what nobody can mean is refused by its name") {
  const call::Record record = record_of(kGdn);
  const call::Tensor one(call::DType::kF32, {190, 2}, std::vector<double>(380, 0.5));
  const auto refused = [&](const KernelStages& kernel, const char* text) {
    CHECK_THROWS_WITH_AS((void)judged(record, kernel), text, Error);
  };
  refused({.tensors = {{"Z", one}}},
          "/stages: expected one of G, beta, q, k, A, T, w, u, h, v_new, actual 'Z'");
  refused({.tensors = {{"G", call::Tensor(call::DType::kF32, {190})}}},
          "/stages/G: expected [190,2] = tokens,HV(,K) in chunks of 64, actual [190]");
  refused({.tensors = {{"G", call::Tensor(call::DType::kI32, {190, 2})}}},
          "/stages/G: expected a floating-point type, actual i32");
  refused({.tensors = {{"beta", one}}, .forms = {{"beta", "log2"}}},
          "/stages/beta@form: expected no form: there is only one, actual log2");
  refused({.tensors = {{"G", one}}, .forms = {{"G", "log10"}}},
          "/stages/G@form: expected one of log, log2, actual log10");
  refused({.tensors = {{"G", one}}, .forms = {{"A", "minus"}}},
          "/stages/A@form: expected the form of a stage that is there, actual minus of none");
  refused({.tensors = {{"G", one}}, .chunk = 5000},
          "/stages@chunk: expected from 1 to 256 tokens, actual 5000");
}

TEST_CASE("first bad stage: kernels store in any type") {
  const call::Record record = record_of(kGdn);
  const contract::Contract& bf16 = contract::find_contract("chunk64_bf16");
  const call::TensorMap honest = delta::emulate_stages(record, bf16, 5);
  for (const call::DType type :
       {call::DType::kBF16, call::DType::kF16, call::DType::kF32, call::DType::kF64}) {
    CAPTURE(call::info(type).name);
    CHECK(first_of(judged(record, stored(honest, type), bf16)).empty());
  }
  // The numbers of a bf16 kernel are no fp32 kernel's.
  CHECK_FALSE(first_of(judged(record, stored(honest))).empty());
}
