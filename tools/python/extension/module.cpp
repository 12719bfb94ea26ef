// SPDX-License-Identifier: Apache-2.0
//
// goldenrule._core: what the Python package takes from the library. Every function that may take
// long runs without the interpreter's lock, and ends with the exception of a signal handler
// (Ctrl-C: KeyboardInterrupt). The library's errors arrive as the built-in exceptions of their
// kind, with the one line that the program would print.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "fixtures/schema/read.hpp"
#include "fixtures/schema/write.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/arbiter/limits.hpp"
#include "reference/arbiter/tables.hpp"
#include "reference/report/page.hpp"
#include "tools/python/extension/arbiter.hpp"
#include "tools/python/extension/convert.hpp"
#include "tools/python/extension/gpu_calls.hpp"
#include "tools/python/extension/gpu_xla.hpp"
#include "tools/python/extension/interruptible.hpp"
#include "tools/python/extension/turns.hpp"

namespace goldenrule::python {
namespace {

namespace nb = nanobind;

// Computations that run, on whichever threads. At its end the interpreter waits for none of its
// daemon threads, and ends the process under those that still compute: so they are stopped before.
std::atomic<int> running = 0;
std::atomic<bool> ending = false;

class Running {
 public:
  Running() { ++running; }
  ~Running() { --running; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// A copy of the process has none of the other threads.
void forget_others() { running = 0; }

void stop_all() {
  ending = true;  // under the lock: who has not begun will see it
  const nb::gil_scoped_release unlocked;
  while (running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool must_end() {
  if (ending) PyErr_SetString(PyExc_RuntimeError, "the interpreter ends");
  return ending;
}

// Whether a signal handler has raised an exception, or the interpreter ends.
bool signal_raised() {
  const nb::gil_scoped_acquire lock;
  return PyErr_CheckSignals() != 0 || must_end();
}

// job(), without the lock; throws what a signal handler has raised instead, or `interrupted`.
template <class F>
auto computed(F&& job, const std::function<bool()>& interrupted = signal_raised) {
  if (must_end()) throw nb::python_error();
  const Running counted;  // until the lock is held again
  auto result = [&] {
    const nb::gil_scoped_release unlocked;
    return result_of(job, interrupted);
  }();
  if (!result) throw nb::python_error();
  return std::move(*result);
}

PyObject* exception_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kFile:
      return PyExc_OSError;
    case ErrorKind::kType:
      return PyExc_TypeError;
    case ErrorKind::kSchema:
    case ErrorKind::kShape:
    case ErrorKind::kValue:
    case ErrorKind::kUnsafe:
    case ErrorKind::kArgument:
      return PyExc_ValueError;
  }
  return PyExc_ValueError;  // unreachable: every kind is handled above
}

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    PyErr_SetString(exception_of(error.kind()), error.what());
  } catch (const TooLarge& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  }
}

// What is being thrown becomes the interpreter's error: it may not leave through other threads.
void set_error() {
  try {
    translate(std::current_exception(), nullptr);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

nb::tuple judge_call(const nb::dict& call, const Asked& asked) {
  call::Record record = to_record(call, asked.explain);
  std::optional<verdict::KernelStages> stages = to_stages(call);
  const Judged judged =
      computed([&] { return judge(std::move(record), std::move(stages), asked); });
  return nb::make_tuple(judged.text, judged.json);
}

nb::tuple expected_of(const nb::dict& call, const Asked& asked) {
  const call::Record record = to_record(call, false);
  ExpectedCall answer = computed([&] { return expected(record, asked); });
  nb::dict outputs;
  for (auto& [name, output] : answer.outputs) {
    nb::object budget = nb::none();
    if (!output.budget.empty()) budget = to_array(std::move(output.budget));
    outputs[name.c_str()] =
        nb::make_tuple(to_tuple(output.shape), to_array(std::move(output.golden)),
                       to_array(std::move(output.radius)), budget);
  }
  return nb::make_tuple(answer.contract, answer.precision_bits, outputs);
}

// `kernel` takes a call as judge_call does and returns it with the outputs; it is called on this
// thread.
nb::list check_relations(const nb::dict& call, const nb::callable& kernel,
                         const AskedRelations& asked) {
  const call::Record record = to_record(call, false);
  Turns turns;
  const auto interrupted = [&] {
    const nb::gil_scoped_acquire lock;
    bool ends = signal_raised();
    if (!ends) {
      try {
        turns.answer([&](const call::Record& made) {
          return to_record(nb::cast<nb::dict>(kernel(to_dict(made))), false).outputs;
        });
      } catch (...) {
        set_error();
        ends = true;
      }
    }
    if (ends) turns.end();
    return ends;
  };
  const std::vector<RelationRow> rows = computed(
      [&] {
        return relations_of(
            record, [&](const call::Record& made) { return turns.ask(made); }, asked);
      },
      interrupted);
  return to_list(rows);
}

nb::dict coordinates_of(const nb::dict& call, const std::string& output,
                        const std::vector<std::int64_t>& index) {
  return to_dict(verdict::coordinates(to_record(call, false), output, index));
}

nb::list case_rows(const std::string& what) {
  nb::list rows;
  for (const CaseRow& row : computed([&] { return cases_of(what); })) {
    nb::dict fields;
    fields["line"] = row.line;
    fields["op"] = row.op;
    fields["mode"] = row.mode;
    fields["pattern"] = row.pattern;
    fields["stem"] = row.stem;
    fields["golden_bytes"] = row.golden_bytes;
    rows.append(fields);
  }
  return rows;
}

nb::dict make_call(const std::string& line) {
  return to_dict(computed([&] { return cases::make_record(cases::parse(line)); }));
}

std::string to_path(const nb::bytes& path) { return {path.c_str(), path.size()}; }

void write_file(const nb::bytes& path, const nb::dict& call) {
  schema::Fixture fixture;
  fixture.record = to_record(call, false);
  if (std::optional<verdict::KernelStages> stages = to_stages(call)) {
    fixture.stages = std::move(stages->tensors);
    fixture.stage_chunk = stages->chunk;
    fixture.stage_forms = std::move(stages->forms);
  }
  const std::string to = to_path(path);
  (void)computed([&] {
    schema::write_fixture(to, fixture);
    return true;
  });
}

nb::tuple read_file(const nb::bytes& file) {
  const std::string path = to_path(file);
  schema::Fixture fixture = computed(
      [&] { return schema::read_fixture(path, arbiter::Limits{}.reading({.explained = false})); });
  nb::dict golden;
  for (auto& [name, tensor] : fixture.golden) {
    golden[name.c_str()] = nb::make_tuple(to_tuple(std::move(tensor.value)), tensor.radius);
  }
  nb::dict call = to_dict(std::move(fixture.record));
  put_stages(std::move(fixture.stages), fixture.stage_chunk, fixture.stage_forms, call);
  return nb::make_tuple(call, golden);
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator(translate);
  nb::set_leak_warnings(false);  // a daemon thread holds what it holds when the process ends
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(stop_all));
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          nb::cpp_function(forget_others));
  m.attr("__version__") = GOLDENRULE_VERSION;
  m.def("schema", [] { return arbiter::schema_json().dump(); });
  m.def("table", [](const std::string& what) {
    return computed([&] { return arbiter::table_json(what).dump(); });
  });
  m.def("contract", contract_json, nb::arg("text"), nb::arg("op") = "");
  nb::class_<Asked>(m, "Asked")
      .def(nb::init<>())
      .def_rw("name", &Asked::name)
      .def_rw("contract", &Asked::contract)
      .def_rw("precision", &Asked::precision)
      .def_rw("only", &Asked::only)
      .def_rw("terms", &Asked::terms)
      .def_rw("explain", &Asked::explain)
      .def_rw("blind", &Asked::blind)
      .def_rw("explain_seconds", &Asked::explain_seconds, nb::arg().none());
  nb::class_<AskedRelations>(m, "AskedRelations")
      .def(nb::init<>())
      .def_rw("names", &AskedRelations::names)
      .def_rw("contract", &AskedRelations::contract)
      .def_rw("same_bits", &AskedRelations::same_bits)
      .def_rw("repeats", &AskedRelations::repeats);
  m.def("relations", check_relations);
  m.def("coordinates", coordinates_of);
  m.def("admit_tensors", admit_tensors);
  m.def("judge", judge_call);
  m.def("page",
        [](const std::string& json) { return computed([&] { return report::page(json); }); });
  m.def("expected", expected_of);
  m.def("cases", case_rows);
  m.def("make_call", make_call);
  m.def("write", write_file);
  m.def("read", read_file);
  gpu::add_calls(m);
  gpu::add_xla_calls(m);
}

}  // namespace goldenrule::python
