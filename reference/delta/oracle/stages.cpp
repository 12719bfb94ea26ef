// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/stages.hpp"

#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/ring.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {
namespace {

using scalar::Quad;

// One stage while it is filled: rows of `width` numbers, one per (token or chunk, head).
struct Stage {
  call::Shape shape;
  std::int64_t heads, width;
  std::vector<double> values;

  Stage(call::Shape s, std::int64_t h, std::int64_t w)
      : shape(std::move(s)),
        heads(h),
        width(w),
        values(static_cast<std::size_t>(call::element_count(shape)), 0.0) {}

  double* row(std::int64_t outer, std::int64_t head) {
    return values.data() + (outer * heads + head) * width;
  }
};

struct Stages {
  Stage G, beta, q, k, A, T, w, u, v_new, h;
};

Stages allocate(const call::Record& record, const call::Dims& d, std::int64_t gates, std::int64_t C,
                std::int64_t chunks) {
  const bool vk = record.convention.state_layout == call::StateLayout::kVK;
  const call::Shape g =
      gates == 1 ? call::Shape{d.tokens, d.HV} : call::Shape{d.tokens, d.HV, gates};
  const call::Shape state{chunks, d.HV, vk ? d.V : d.K, vk ? d.K : d.V};
  return {.G = {g, d.HV, gates},
          .beta = {{d.tokens, d.HV}, d.HV, 1},
          .q = {{d.tokens, d.H, d.K}, d.H, d.K},
          .k = {{d.tokens, d.H, d.K}, d.H, d.K},
          .A = {{d.tokens, d.HV, C}, d.HV, C},
          .T = {{d.tokens, d.HV, C}, d.HV, C},
          .w = {{d.tokens, d.HV, d.K}, d.HV, d.K},
          .u = {{d.tokens, d.HV, d.V}, d.HV, d.V},
          .v_new = {{d.tokens, d.HV, d.V}, d.HV, d.V},
          .h = {state, d.HV, d.K * d.V}};
}

void copy_row(const Matrix<Quad>& from, std::int64_t row, double* to) {
  for (std::int64_t i = 0; i < from.cols(); ++i) to[i] = from(row, i).hi;
}

class StageWriter {
 public:
  StageWriter(const call::Record& record, const call::Plan& plan, std::int64_t C)
      : record_(record),
        d_(plan.dims),
        C_(C),
        inputs_(record),
        index_(record, plan.dims),
        stages_(allocate(record, d_, gate_count(), C, count_chunks(plan, C))) {}

  static std::int64_t count_chunks(const call::Plan& plan, std::int64_t C) {
    std::int64_t chunks = 0;
    for (const call::Sequence& s : plan.sequences) chunks += (s.token_count + C - 1) / C;
    return chunks;
  }

  void run(const call::Sequence& sequence, std::int64_t first_chunk, std::int64_t head) {
    const auto lane =
        prepare_lane<Quad>(record_, d_, inputs_, sequence.first_token, sequence.token_count, head);
    ChunkStages<Quad> result;
    (void)chunk_form<Quad>(lane, lane_values(inputs_, d_, index_, sequence, head),
                           lane_start(inputs_, d_, index_, sequence, head), C_, &result);
    const std::int64_t qk_head = d_.qk_head(record_.convention.head_map, head);
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      const std::int64_t token = sequence.first_token + t;
      copy_row(result.G, t, stages_.G.row(token, head));
      *stages_.beta.row(token, head) = lane.beta[static_cast<std::size_t>(t)].hi;
      if (stores_keys(record_, d_, head)) {
        for (std::int64_t i = 0; i < d_.K; ++i) {
          stages_.q.row(token, qk_head)[i] = lane.q_row(t)[i].hi;
          stages_.k.row(token, qk_head)[i] = lane.k_row(t)[i].hi;
        }
      }
      copy_row(result.A, t, stages_.A.row(token, head));
      copy_row(result.T, t, stages_.T.row(token, head));
      copy_row(result.w, t, stages_.w.row(token, head));
      copy_row(result.u, t, stages_.u.row(token, head));
      copy_row(result.v_new, t, stages_.v_new.row(token, head));
    }
    for (std::size_t c = 0; c < result.h.size(); ++c) {
      store_state(result.h[c], stages_.h.row(first_chunk + static_cast<std::int64_t>(c), head));
    }
  }

  [[nodiscard]] call::TensorMap tensors() && {
    call::TensorMap map;
    const auto put = [&](const std::string& name, const Stage& stage) {
      map.emplace(name, call::Tensor(call::DType::kF64, stage.shape, stage.values));
    };
    put("G", stages_.G);
    put("beta", stages_.beta);
    put("q", stages_.q);
    put("k", stages_.k);
    put("A", stages_.A);
    put("T", stages_.T);
    put("w", stages_.w);
    put("u", stages_.u);
    put("v_new", stages_.v_new);
    put("h", stages_.h);
    return map;
  }

 private:
  [[nodiscard]] std::int64_t gate_count() const { return call::gate_channels(record_, d_.K); }

  void store_state(const Matrix<Quad>& state, double* to) const {
    for (std::int64_t i = 0; i < d_.K; ++i) {
      for (std::int64_t x = 0; x < d_.V; ++x) to[index_(0, 0, i, x)] = state(i, x).hi;
    }
  }

  const call::Record& record_;
  const call::Dims d_;
  const std::int64_t C_;
  const CallInputs inputs_;
  const OutputIndex index_;
  Stages stages_;
};

}  // namespace

call::TensorMap chunk_stages(const call::Record& record, std::int64_t C) {
  if (C < 1) throw Error(ErrorKind::kArgument, "stages", "a chunk size >= 1", std::to_string(C));
  if (call::has_tree(record)) {
    throw Error(ErrorKind::kArgument, "stages", "chains: the chunk form has no trees",
                "/inputs/parent_tokens");
  }
  if (call::has_ring(record)) {
    throw Error(ErrorKind::kArgument, "stages", "tokens of the call: those of rings have no stages",
                "/inputs/initial_ring_d");
  }
  const call::Plan plan = call::make_plan(record, false);
  StageWriter writer(record, plan, C);
  struct Job {
    const call::Sequence* sequence;
    std::int64_t first_chunk, head;
  };
  std::vector<Job> jobs;
  std::int64_t chunk = 0;
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t head = 0; head < plan.dims.HV && !s.padded && s.token_count > 0; ++head) {
      jobs.push_back({&s, chunk, head});
    }
    chunk += (s.token_count + C - 1) / C;
  }
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const Job& job = jobs[static_cast<std::size_t>(i)];
    writer.run(*job.sequence, job.first_chunk, job.head);
  });
  return std::move(writer).tensors();
}

}  // namespace goldenrule::delta
