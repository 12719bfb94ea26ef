// SPDX-License-Identifier: Apache-2.0
//
// Length: a row and a function per stage.
#include "reference/delta/oracle/stages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixtures/call/error.hpp"
#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/oracle/chunk_certificate.hpp"
#include "reference/delta/oracle/judged_tokens.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/ring.hpp"
#include "reference/delta/oracle/stage_fill.hpp"
#include "reference/delta/oracle/stage_reach.hpp"

namespace goldenrule::delta {
namespace {

using verdict::Exact;
using verdict::ExpectedStage;
using verdict::ExpectedStages;
using verdict::StageRow;

StageTensors delta_tensors(const call::Record& record, const call::Dims& d, std::int64_t C,
                           std::int64_t chunks, const std::vector<std::string>& names) {
  StageTensors to(names);
  const bool vk = record.convention.state_layout == call::StateLayout::kVK;
  const std::int64_t gates = call::gate_channels(record, d.K);
  const std::int64_t n = d.tokens;
  if (gates == 1) {
    to.add("G", {n, d.HV}, {"token", "head"}, 1);
  } else {
    to.add("G", {n, d.HV, gates}, {"token", "head", "key"}, gates);
  }
  to.add("beta", {n, d.HV}, {"token", "head"}, 1);
  to.add("q", {n, d.H, d.K}, {"token", "query/key head", "key"}, d.K);
  to.add("k", {n, d.H, d.K}, {"token", "query/key head", "key"}, d.K);
  to.add("A", {n, d.HV, C}, {"token", "head", "column"}, C);
  to.add("T", {n, d.HV, C}, {"token", "head", "column"}, C);
  to.add("w", {n, d.HV, d.K}, {"token", "head", "key"}, d.K);
  to.add_values("u", n, d);
  to.add_values("v_new", n, d);
  to.add_states("h", chunks, d, vk);
  if (FilledStage* G = to.find("G"); G != nullptr) G->exact().logarithms = true;
  return to;
}

template <class S>
class StageEvaluation {
 public:
  StageEvaluation(const call::Record& record, const call::Plan& plan, std::int64_t C,
                  StageTensors& tensors)
      : record_(record),
        d_(plan.dims),
        C_(C),
        inputs_(record),
        index_(record, plan.dims),
        tensors_(tensors) {}

  void run(const call::Sequence& sequence, std::int64_t first_chunk, std::int64_t head) {
    const auto lane = prepare_lane<S>(record_, d_, inputs_, sequence, head);
    const Matrix<double> v = lane_values(inputs_, d_, index_, sequence, head);
    const Matrix<double> start = lane_start(inputs_, d_, index_, sequence, head);
    ChunkStages<S> stages;
    const FormResult<S> result = chunk_form<S>(lane, v, start, C_, &stages);
    const ChunkErrors errors = chunk_errors<S>(lane, v, start, C_, result, stages);
    const JudgedTokens judged = judged_tokens(lane.first_nonfinite, v, start, C_);
    const std::int64_t qk_head = d_.qk_head(record_.convention.head_map, head);
    const bool has_keys = stores_keys(record_, d_, head);
    for (std::int64_t t = 0; t < lane.tokens; ++t) {
      const std::int64_t token = sequence.first_token + t;
      const std::int64_t column = t % C_;
      const bool ok = t < judged.keys;
      const auto below = [](std::int64_t count) {
        return [count](std::int64_t i) { return i < count; };
      };
      store_gates(lane, t, token, head, stages.G, errors.G, t < judged.gates);
      const S* beta = &lane.beta[static_cast<std::size_t>(t)];
      const double e_b = lane.bounds[static_cast<std::size_t>(t)].beta_error;
      const auto relative = [](const S* x, double e) {
        return [x, e](std::int64_t i) { return e * std::fabs(scalar::to_double(x[i])); };
      };
      store("beta", token, head, beta, below(t < judged.beta ? 1 : 0), relative(beta, e_b));
      if (has_keys) {
        const S* q = lane.q_row(t);
        const S* k = lane.k_row(t);
        store("q", token, qk_head, q, below(t < judged.q ? d_.K : 0), relative(q, lane.q_error));
        store("k", token, qk_head, k, below(t < judged.k ? d_.K : 0), relative(k, lane.k_error));
      }
      const auto of = [t](const Matrix<double>& e) {
        return [&e, t](std::int64_t i) { return e(t, i); };
      };
      store("A", token, head, stages.A.row(t).data(), below(ok ? column : 0), of(errors.A));
      store("T", token, head, stages.T.row(t).data(), below(ok ? column + 1 : 0), of(errors.T));
      store("w", token, head, stages.w.row(t).data(), below(ok ? d_.K : 0),
            [&](std::int64_t) { return errors.w(t); });
      store(
          "u", token, head, stages.u.row(t).data(),
          [&](std::int64_t x) { return t < judged.values[static_cast<std::size_t>(x)]; },
          of(errors.u));
      store(
          "v_new", token, head, stages.v_new.row(t).data(),
          [&](std::int64_t x) { return judged.corrects(t, x); }, of(errors.v_new));
    }
    store_reach(lane, v, stages, sequence.first_token, head);
    for (std::size_t c = 0; c < stages.h.size(); ++c) {
      const auto n = static_cast<std::int64_t>(c);
      store_state(stages.h[c], errors.h[c], first_chunk + n, head, n > 0,
                  [&](std::int64_t x) { return judged.holds(n * C_, x); });
    }
  }

 private:
  // Numbers of a row from a lane, those that are defined.
  template <class D, class E>
  void store(const char* name, std::int64_t outer, std::int64_t head, const S* values,
             const D& is_defined, const E& error) {
    FilledStage* f = tensors_.find(name);
    if (f == nullptr) return;
    const std::size_t row = f->row(outer, head);
    bool any = false;
    for (std::int64_t i = 0; i < f->width; ++i) {
      any = any || is_defined(i);
      f->put(row + static_cast<std::size_t>(i), values[i], error(i), is_defined(i));
    }
    if (any) f->exact().touched[row / f->exact().block] = verdict::Touch::kComputed;
  }

  void store_reach(const Lane<S>& lane, const Matrix<double>& v, const ChunkStages<S>& stages,
                   std::int64_t first_token, std::int64_t head) {
    for (const char* name : {"u", "v_new"}) {
      FilledStage* f = tensors_.find(name);
      if (f == nullptr) continue;
      const bool reads_state = name == std::string("v_new");
      for (std::int64_t t = 0; t < lane.tokens; ++t) {
        const Eigen::RowVectorXf reach = correction_reach(lane, v, stages, C_, t, reads_state);
        std::copy_n(
            reach.data(), d_.V,
            f->exact().reach.begin() + static_cast<std::ptrdiff_t>(f->row(first_token + t, head)));
      }
    }
  }

  void store_gates(const Lane<S>& lane, std::int64_t t, std::int64_t token, std::int64_t head,
                   const Matrix<S>& G, const Matrix<double>& error, bool ok) {
    FilledStage* f = tensors_.find("G");
    if (f == nullptr) return;
    const std::size_t row = f->row(token, head);
    for (std::int64_t g = 0; g < lane.gates; ++g) {
      bool is_number = true;
      for (std::int64_t l = t / C_ * C_; l <= t; ++l) {
        is_number = is_number && has_logarithm(record_.convention, lane.alpha_at(l, g));
      }
      f->put(row + static_cast<std::size_t>(g), G(t, g), error(t, g), ok && is_number);
    }
    if (ok) f->exact().touched[row / f->exact().block] = verdict::Touch::kComputed;
  }

  template <class D>
  void store_state(const Matrix<S>& state, const Eigen::RowVectorXd& error, std::int64_t chunk,
                   std::int64_t head, bool computed, const D& is_defined) {
    FilledStage* f = tensors_.find("h");
    if (f == nullptr) return;
    const std::size_t block = f->row(chunk, head);
    bool any = false;
    for (std::int64_t i = 0; i < d_.K; ++i) {
      for (std::int64_t x = 0; x < d_.V; ++x) {
        any = any || is_defined(x);
        f->put(block + index_(0, 0, i, x), state(i, x), error(x), is_defined(x));
      }
    }
    if (any && computed) f->exact().touched[block / f->exact().block] = verdict::Touch::kComputed;
  }

  const call::Record& record_;
  const call::Dims d_;
  const std::int64_t C_;
  const CallInputs inputs_;
  const OutputIndex index_;
  StageTensors& tensors_;
};

template <class S>
ExpectedStages evaluate(const call::Record& record, std::int64_t C,
                        const std::vector<std::string>& names) {
  const call::Plan plan = call::make_plan(record, false);
  std::int64_t chunks = 0;
  struct Job {
    const call::Sequence* sequence;
    std::int64_t first_chunk, head;
  };
  std::vector<Job> jobs;
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t head = 0; head < plan.dims.HV && !s.padded && s.token_count > 0; ++head) {
      jobs.push_back({&s, chunks, head});
    }
    chunks += chunks_of(s, C);
  }
  StageTensors tensors = delta_tensors(record, plan.dims, C, chunks, names);
  StageEvaluation<S> evaluation(record, plan, C, tensors);
  const parallel::Phase phase("stages");
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const Job& job = jobs[static_cast<std::size_t>(i)];
    evaluation.run(*job.sequence, job.first_chunk, job.head);
  });
  return std::move(tensors).take();
}

}  // namespace

std::int64_t chunks_of(const call::Sequence& sequence, std::int64_t C) {
  return (sequence.token_count + C - 1) / C;
}

ExpectedStages evaluate_stages(const call::Record& record, std::int64_t C,
                               const std::vector<std::string>& names, scalar::Precision precision) {
  if (C < 1) throw Error(ErrorKind::kArgument, "stages", "a chunk size >= 1", std::to_string(C));
  if (call::has_tree(record)) {
    throw Error(ErrorKind::kArgument, "stages", "chains: the chunk form has no trees",
                "/inputs/parent_tokens");
  }
  if (call::has_ring(record)) {
    throw Error(ErrorKind::kArgument, "stages", "tokens of the call: those of rings have no stages",
                "/inputs/initial_ring_d");
  }
  switch (precision) {
    case scalar::Precision::kDouble:
      return evaluate<double>(record, C, names);
    case scalar::Precision::kQuad:
      return evaluate<scalar::Quad>(record, C, names);
    case scalar::Precision::kMulti:
      return evaluate<scalar::Multi>(record, C, names);
  }
  return {};
}

call::TensorMap chunk_stages(const call::Record& record, std::int64_t C) {
  const verdict::StageSlice slice{
      .table = stage_table, .evaluate = evaluate_stages, .grant = nullptr, .in_form = nullptr};
  return verdict::exact_stages(slice, record, C);
}

}  // namespace goldenrule::delta
