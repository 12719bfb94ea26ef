// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_gpu_run: runs fixtures through the GPU kernels, by way of the C
// interface, and writes captures that `goldenrule check` and `goldenrule diff` judge.
//
// Exit codes: 0 every file was run, 1 a call was refused by the kernels (its message is printed),
// 2 something could not be run: a file that cannot be read or written, a CUDA error, no device.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/hdf5/library.hpp"
#include "fixtures/schema/read.hpp"
#include "fixtures/schema/write.hpp"
#include "gpu/host/cuda_handles.hpp"
#include "tools/gpu_run/attention_call.hpp"

namespace {

using namespace goldenrule;  // NOLINT(google-build-using-namespace): the program's own
namespace fs = std::filesystem;

struct Refused {
  std::string text;
};

/// NaN in every float type: an element that the kernel does not write cannot look right.
constexpr int kPoison = 0xff;

std::string device_name() {
  int id = 0;
  cudaDeviceProp properties{};
  gpu::check_cuda(cudaGetDevice(&id), "cudaGetDevice");
  gpu::check_cuda(cudaGetDeviceProperties(&properties, id), "cudaGetDeviceProperties");
  return properties.name;
}

/// The tensors of a call on the device.
struct Placed {
  std::vector<gpu::DeviceMemory> memory;
  std::map<std::string, void*> addresses;

  goldenrule_gpu_tensor place(const std::string& name, const call::Tensor& t, bool unwritten) {
    memory.push_back(gpu::allocate_device(t.bytes().size()));
    void* address = memory.back().get();
    gpu::check_cuda(
        unwritten ? cudaMemset(address, kPoison, t.bytes().size())
                  : cudaMemcpy(address, t.bytes().data(), t.bytes().size(), cudaMemcpyHostToDevice),
        name.c_str());
    addresses[name] = address;
    return goldenrule_gpu_tensor{.data = address, .stride = {}, .dtype = 0, .dense = 1};
  }
};

template <class Args>
void launch(goldenrule_gpu_status (*entry)(const Args*, char*, std::size_t), const Args& args) {
  char message[256];
  const goldenrule_gpu_status status = entry(&args, message, sizeof message);
  if (status != GOLDENRULE_GPU_OK) {
    throw Refused{std::string(goldenrule_gpu_status_name(status)) + ": " + message};
  }
  gpu::check_cuda(cudaDeviceSynchronize(), "kernel");
}

/// Runs the call; fills record.outputs, and contract and source with what the kernel keeps and is.
void run(call::Record& record, const std::string& device) {
  record.outputs = gpu::make_outputs(record, gpu::Update::kSeparate);
  Placed placed;
  const gpu::Place place = [&](const std::string& name, const call::Tensor& t) {
    const bool only_written = name == "o" || name == "lse" || name == "checkpoints" ||
                              (name == "intermediate_states" && !gpu::holds_before(record, name));
    return placed.place(name, t, only_written);
  };
  if (record.op == call::Op::kAttention) {
    launch(goldenrule_gpu_attention, gpu::make_attention_args(record, place));
    record.contract = gpu::kAttentionContract;
    record.source = "goldenrule_gpu_attention, " + device;
  } else if (record.mode == call::Mode::kPrefill) {
    goldenrule_gpu_prefill_args args = gpu::make_prefill_args(record, place);
    args.workspace_size = goldenrule_gpu_prefill_workspace_size(&args);
    placed.memory.push_back(gpu::allocate_device(args.workspace_size));
    if (args.workspace_size > 0) args.workspace = placed.memory.back().get();
    launch(goldenrule_gpu_prefill, args);
    record.contract = gpu::contract_of(record, args);
    record.source = "goldenrule_gpu_prefill, " + device;
  } else {
    launch(goldenrule_gpu_recurrent, gpu::make_args(record, place));
    record.contract = gpu::contract_of(record);
    record.source = "goldenrule_gpu_recurrent, " + device;
  }
  for (auto& [name, tensor] : record.outputs) {
    gpu::check_cuda(cudaMemcpy(tensor.bytes().data(), placed.addresses.at(name),
                               tensor.bytes().size(), cudaMemcpyDeviceToHost),
                    name.c_str());
  }
}

int run_file(const std::string& file, const fs::path& directory, const std::string& device) {
  try {
    schema::Fixture fixture =
        schema::read_fixture(file, {.golden = false, .budgets = false, .stages = false});
    fixture.precision_bits = 0;
    fixture.generator.clear();
    run(fixture.record, device);
    const fs::path path = directory / fs::path(file).filename();
    schema::write_fixture(path, fixture);
    fmt::print("{}\n", path.string());
    return 0;
  } catch (const Refused& refused) {
    fmt::print(stderr, "goldenrule_gpu_run: {}: {}\n", file, refused.text);
    return 1;
  } catch (const Error& error) {
    fmt::print(stderr, "goldenrule_gpu_run: {}\n", error.in_file(file).what());
  }
  return 2;
}

int run_all(int argc, char** argv) {
  CLI::App app{"goldenrule_gpu_run: runs fixtures through the GPU kernels and writes captures"};
  std::vector<std::string> files;
  std::string directory;
  app.add_option("files", files, "fixtures in schema goldenrule/1")->required();
  app.add_option("-o,--output", directory, "directory of the captures")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (gpu::device_count() == 0) {
    fmt::print("SKIPPED: no CUDA device\n");
    return 2;
  }
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) {
    throw Error(ErrorKind::kFile, directory, "output directory", "a writable directory",
                failure.message());
  }
  const std::string device = device_name();
  int worst = 0;
  for (const std::string& file : files) worst = std::max(worst, run_file(file, directory, device));
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  hdf5::skip_cleanup_at_exit();
  try {
    return run_all(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "goldenrule_gpu_run: {}\n", e.what());
  }
  return 2;
}
